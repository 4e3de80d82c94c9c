package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"time"
)

// A Record is what is appended to a ledger.
type Record struct {
	// ID is what duplicates share, see [ProducerOptions].Duplicates. The zero
	// ID is nobody's: a record without one is never a duplicate. Only
	// producers look at it.
	ID [16]byte

	// Data is the entry. It stays the caller's: a copy is stored.
	Data []byte
}

// An Entry is what is read from a ledger.
type Entry struct {
	// Seq is its place in the ledger, from 1 on, without gaps.
	Seq uint64

	// Stored is when it was committed, by the clock of the machine, but never
	// before an earlier entry.
	Stored time.Time

	// Data is what was appended. It is shared with other readers and must not
	// be changed.
	Data []byte
}

const (
	format    = 1  // of rows and of the meta row
	rowHeader = 21 // bytes
)

// A row is a run of entries, stored under one key. Only the data of one that
// has not been committed yet changes.
type row struct {
	first  uint64    // sequence of the first entry
	stored time.Time // when it was committed
	before uint64    // bytes of data in all rows before
	ends   []byte    // for each entry, where its data ends: 4 bytes, little endian
	data   []byte
}

func (r *row) len() int { return len(r.ends) / 4 }

// next returns the sequence after the last entry.
func (r *row) next() uint64 { return r.first + uint64(r.len()) }

// end returns where entry i ends; entry i+1 starts there.
func (r *row) end(i int) int {
	if i < 0 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(r.ends[4*i:]))
}

func (r *row) entry(i int) Entry {
	from, to := r.end(i-1), r.end(i)
	return Entry{Seq: r.first + uint64(i), Stored: r.stored, Data: r.data[from:to:to]}
}

// beforeSeq returns the bytes of all entries before one of the row.
func (r *row) beforeSeq(seq uint64) uint64 { return r.before + uint64(r.end(int(seq-r.first)-1)) }

// minRow is how many bytes a row may grow to by being copied.
const minRow = 8 << 10

// fits reports whether an entry may join a row that is to have at most so many
// bytes.
func (r *row) fits(data []byte, rowBytes int) bool {
	n := len(r.data) + len(data)
	return r.len() == 0 || n <= rowBytes && (n <= cap(r.data) || n <= minRow)
}

func (r *row) add(data []byte) {
	r.data = append(r.data, data...)
	r.ends = binary.LittleEndian.AppendUint32(r.ends, uint32(len(r.data)))
}

// size is what the row weighs in memory.
func (r *row) size() int { return cap(r.data) + cap(r.ends) + 128 }

func (r *row) encodedLen() int { return rowHeader + len(r.ends) + len(r.data) }

// encode writes the row to b, which has encodedLen bytes.
func (r *row) encode(b []byte) {
	b[0] = format
	binary.BigEndian.PutUint64(b[1:], uint64(r.stored.UnixNano()))
	binary.BigEndian.PutUint32(b[9:], uint32(r.len()))
	binary.BigEndian.PutUint64(b[13:], r.before)
	n := copy(b[rowHeader:], r.ends)
	copy(b[rowHeader+n:], r.data)
}

// decodeRow returns the row that starts at first. It shares b.
func decodeRow(first uint64, b []byte) (*row, error) {
	if len(b) == 0 {
		return nil, errors.New("an empty row")
	}
	if b[0] != format {
		return nil, fmt.Errorf("a row in format %d, but this version knows format %d only", b[0], format)
	}
	if len(b) < rowHeader {
		return nil, fmt.Errorf("a row of %d bytes", len(b))
	}
	n := uint64(binary.BigEndian.Uint32(b[9:]))
	if n == 0 || rowHeader+4*n > uint64(len(b)) || first == 0 || first+n < first {
		return nil, fmt.Errorf("a row of %d bytes that should hold %d entries", len(b), n)
	}
	r := &row{
		first:  first,
		stored: time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))),
		before: binary.BigEndian.Uint64(b[13:]),
		ends:   b[rowHeader : rowHeader+4*n : rowHeader+4*n],
		data:   b[rowHeader+4*n:],
	}
	last := 0
	for i := range int(n) {
		end := r.end(i)
		if end < last {
			return nil, fmt.Errorf("entry %d ends before it starts", first+uint64(i))
		}
		last = end
	}
	if last != len(r.data) {
		return nil, fmt.Errorf("a row with %d bytes of entries that should hold %d", len(r.data), last)
	}
	return r, nil
}

// find returns the index of the row that holds seq, or of the first after it.
func find(rows []*row, seq uint64) int {
	return sort.Search(len(rows), func(i int) bool { return rows[i].next() > seq })
}

// A key is where something of a ledger stands: prefix, kind, sequence.
const (
	kindMeta  = 'm'
	kindRow   = 'e'
	kindIDs   = 'i'
	keySuffix = 1 + 8
)

func (l *Ledger) key(kind byte, seq uint64) []byte {
	k := make([]byte, 0, len(l.prefix)+keySuffix)
	k = append(append(k, l.prefix...), kind)
	return binary.BigEndian.AppendUint64(k, seq)
}

// putKey writes a key to b, which has the length of one.
func (l *Ledger) putKey(b []byte, kind byte, seq uint64) {
	n := copy(b, l.prefix)
	b[n] = kind
	binary.BigEndian.PutUint64(b[n+1:], seq)
}

func (l *Ledger) keyLen() int { return len(l.prefix) + keySuffix }

// seqOf returns the sequence in a key of rows or of IDs.
func (l *Ledger) seqOf(key []byte) (uint64, error) {
	if len(key) != l.keyLen() {
		return 0, fmt.Errorf("key %q is not one of the ledger %q", key, l.prefix)
	}
	return binary.BigEndian.Uint64(key[len(key)-8:]), nil
}

// A meta is the row that says what the others do not: what was deleted. It is
// written whenever something is.
type meta struct {
	first   uint64 // the first entry that is not deleted; when all are, the next
	deleted uint64 // bytes of all entries before first
	stored  int64  // no entry from first on is stored before that
}

const metaLen = 1 + 3*8

func (m meta) encode() []byte {
	b := make([]byte, 0, metaLen)
	b = append(b, format)
	b = binary.BigEndian.AppendUint64(b, m.first)
	b = binary.BigEndian.AppendUint64(b, m.deleted)
	return binary.BigEndian.AppendUint64(b, uint64(m.stored))
}

func decodeMeta(b []byte) (m meta, err error) {
	if len(b) > 0 && b[0] > format {
		return m, fmt.Errorf("it is in format %d, of a newer version than this one, which knows format %d", b[0], format)
	}
	if len(b) != metaLen || b[0] != format {
		return m, fmt.Errorf("its meta row does not parse: %x", b)
	}
	m = meta{
		first:   binary.BigEndian.Uint64(b[1:]),
		deleted: binary.BigEndian.Uint64(b[9:]),
		stored:  int64(binary.BigEndian.Uint64(b[17:])),
	}
	if m.first == 0 {
		return m, errors.New("its meta row makes no sense: the first entry is 0")
	}
	return m, nil
}
