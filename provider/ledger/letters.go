package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// letters is the log of a subscription's dead letters. Each is a row of its own,
// for they leave one by one. Changes are made by one goroutine at a time, for all
// that wait, in one commit.
type letters struct {
	waiting
	broker *Broker
	name   string // of the subscription
	id     uint64
	next   atomic.Uint64 // the sequence that the next letter will have

	mu sync.Mutex
	// Below: under mu.
	count     int    // of letters that are there
	removals  uint64 // how often letters have gone
	consumers map[*consumer]struct{}
	changes   []*change
	changing  bool
	retired   bool // they are no more
}

func newLetters(b *Broker, name string, id, next uint64, count int) *letters {
	l := &letters{broker: b, name: name, id: id, count: count, consumers: make(map[*consumer]struct{})}
	l.next.Store(next)
	return l
}

func (l *letters) first() uint64 { return 1 }
func (l *letters) end() uint64   { return l.next.Load() }

func (l *letters) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// retire ends letters that nobody uses, or takes that back. It reports whether
// it did. What would change them then is told that they are not found.
func (l *letters) retire(ends bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ends && (l.count > 0 || len(l.consumers) > 0 || l.changing) {
		return false
	}
	l.retired = ends
	return true
}

func (l *letters) losses() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.removals
}

func (l *letters) iter(from uint64) (*pebble.Iterator, error) {
	return l.broker.db.NewIter(&pebble.IterOptions{LowerBound: letterKey(l.id, from), UpperBound: letterKey(l.id, l.end())})
}

func (l *letters) read(from uint64, entries, bytes int) ([]queue.Entry, uint64, error) {
	end := l.end()
	if from >= end {
		return nil, from, nil
	}
	it, err := l.iter(from)
	if err != nil {
		return nil, from, err
	}
	defer it.Close()
	var out []queue.Entry
	for it.First(); it.Valid() && len(out) < entries && (len(out) == 0 || bytes > 0); it.Next() {
		data, err := it.ValueAndErr()
		if err != nil {
			return out, from, err
		}
		seq := binary.BigEndian.Uint64(it.Key()[9:])
		stored, _, _, _ := parseLetter(data)
		out = append(out, queue.Entry{Seq: seq, Stored: stored, Data: slices.Clone(data)})
		from = seq + 1
		bytes -= len(data)
	}
	if err := it.Error(); err != nil {
		return out, from, err
	}
	if !it.Valid() {
		from = end
	}
	return out, from, nil
}

func (l *letters) since(t time.Time) (uint64, error) {
	first, end := l.first(), l.end()
	var failed error
	n := sort.Search(int(end-first), func(i int) bool {
		// A letter that was removed is as late as the next that is there.
		es, _, err := l.read(first+uint64(i), 1, 1)
		if err != nil {
			failed = err
		}
		return len(es) == 0 || !es[0].Stored.Before(t)
	})
	return first + uint64(n), failed
}

func (l *letters) open(data []byte) ([]byte, map[string]string, error) {
	_, d, event, err := parseLetter(data)
	if err != nil {
		return nil, nil, err
	}
	return event, d.Annotations(), nil
}

func (l *letters) typ(data []byte) ([]byte, error) {
	_, _, event, err := parseLetter(data)
	if err != nil {
		return nil, err
	}
	return eventType(event)
}

// lettersFormat begins the row of a subscription's dead letters.
const lettersFormat = 1

func encodeLetters(id, next uint64, count int) []byte {
	b := binary.AppendUvarint([]byte{lettersFormat}, id)
	b = binary.AppendUvarint(b, next)
	return binary.AppendUvarint(b, uint64(count))
}

func parseLetters(b []byte) (id, next uint64, count int, err error) {
	p := parser{b: b}
	if f := p.byte(); p.err == nil && f != lettersFormat {
		return 0, 0, 0, fmt.Errorf("the row of dead letters is in format %d, but this version knows format %d only", f, lettersFormat)
	}
	id, next, count = p.uvarint(), p.uvarint(), p.int()
	return id, next, count, p.err
}

// forget takes letters that are gone out of what was read ahead.
func (c *consumer) forget(gone []uint64) {
	if len(gone) == 0 {
		return
	}
	left := make(map[uint64]bool, len(gone))
	for _, seq := range gone {
		left[seq] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = slices.DeleteFunc(slices.Clone(c.ahead), func(e queue.Entry) bool { return left[e.Seq] })
}

var _ log = (*letters)(nil)
var _ log = (*events)(nil)
