package ledger

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// A parser takes apart what this package has put together. After the first
// thing that is not there it returns zeros, and err says so.
type parser struct {
	b   []byte
	err error
}

var errShort = errors.New("it ends too early, or a length in it is wrong")

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) int() int {
	v := p.uvarint()
	if v > math.MaxInt32 {
		p.fail()
		return 0
	}
	return int(v)
}

func (p *parser) byte() byte {
	if len(p.b) == 0 {
		p.fail()
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

func (p *parser) uint64() uint64 {
	if len(p.b) < 8 {
		p.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(p.b)
	p.b = p.b[8:]
	return v
}

// bytes returns a run of bytes with its length before it. It shares memory.
func (p *parser) bytes() []byte {
	n := p.uvarint()
	if n > uint64(len(p.b)) {
		p.fail()
		return nil
	}
	v := p.b[:n:n]
	p.b = p.b[n:]
	return v
}

func (p *parser) string() string { return string(p.bytes()) }

// time returns a time that appendTime wrote.
func (p *parser) time() time.Time {
	v := p.uvarint()
	if v == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(v>>1)^-int64(v&1))
}

func (p *parser) fail() {
	p.b = nil
	if p.err == nil {
		p.err = errShort
	}
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// appendTime writes a time to the nanosecond. The epoch itself becomes the zero
// time, which no clock of a broker shows.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	v := t.UnixNano()
	return binary.AppendUvarint(b, uint64(v<<1)^uint64(v>>63))
}
