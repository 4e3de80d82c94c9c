package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
)

// Marks are a set of sequences, compact where they are dense: everything below a
// floor, and ranges above it. A million sequences marked in any order within a
// window cost no more memory than the gaps that the window has at a time.
//
// Marking costs O(log n) for n ranges, at the floor and at the end less. The
// zero value has nothing marked; its floor is 0. Marks are not safe for
// concurrent use.
type Marks struct {
	floor  uint64
	blocks [][]span // in order, none empty, none longer than blockSpans
	spans  int
	above  uint64 // sequences marked above the floor
}

// A span is the sequences from from to the one before to. Spans do not touch
// each other, nor the floor.
type span struct{ from, to uint64 }

const blockSpans = 256

// NewMarks returns marks for everything below floor.
func NewMarks(floor uint64) *Marks { return &Marks{floor: floor} }

// Floor returns the lowest sequence that is not marked.
func (m *Marks) Floor() uint64 { return m.floor }

// Ranges returns the number of ranges above the floor.
func (m *Marks) Ranges() int { return m.spans }

// Above returns the number of sequences that are marked above the floor.
func (m *Marks) Above() uint64 { return m.above }

// All returns the ranges above the floor in order: of each the first sequence,
// and the first after it. The marks must not change meanwhile.
func (m *Marks) All() iter.Seq2[uint64, uint64] {
	return func(yield func(from, to uint64) bool) {
		for _, b := range m.blocks {
			for _, s := range b {
				if !yield(s.from, s.to) {
					return
				}
			}
		}
	}
}

// Mark marks one sequence and reports whether it was not marked before. The
// largest sequence cannot be marked.
func (m *Marks) Mark(seq uint64) bool { return m.MarkRange(seq, seq+1) > 0 }

// MarkRange marks the sequences from from to the one before to, and returns how
// many of them were not marked before.
func (m *Marks) MarkRange(from, to uint64) uint64 {
	from = max(from, m.floor)
	if from >= to {
		return 0
	}
	if from == m.floor {
		return m.raise(to)
	}
	i, j := m.find(from)
	if i == len(m.blocks) || m.blocks[i][j].from > to {
		m.insert(i, j, span{from, to})
		m.above += to - from
		return to - from
	}
	// It touches a span. That one grows, and swallows those that it reaches.
	s := &m.blocks[i][j]
	fresh := uint64(0)
	if from < s.from {
		fresh += s.from - from
		s.from = from
	}
	for s.to < to {
		ni, nj := i, j+1
		if nj == len(m.blocks[ni]) {
			ni, nj = ni+1, 0
		}
		if ni == len(m.blocks) || m.blocks[ni][nj].from > to {
			fresh += to - s.to
			s.to = to
			break
		}
		next := m.blocks[ni][nj]
		fresh += next.from - s.to
		s.to = next.to
		m.remove(ni, nj)
		s = &m.blocks[i][j]
	}
	m.merge(i, j)
	m.above += fresh
	return fresh
}

// merge joins a span with the next if they touch.
func (m *Marks) merge(i, j int) {
	ni, nj := i, j+1
	if nj == len(m.blocks[ni]) {
		ni, nj = ni+1, 0
	}
	if ni == len(m.blocks) || m.blocks[ni][nj].from > m.blocks[i][j].to {
		return
	}
	m.blocks[i][j].to = m.blocks[ni][nj].to
	m.remove(ni, nj)
}

// raise moves the floor to a sequence or beyond it.
func (m *Marks) raise(to uint64) (fresh uint64) {
	fresh = to - m.floor
	m.floor = to
	for len(m.blocks) > 0 {
		s := m.blocks[0][0]
		if s.from > m.floor {
			break
		}
		n := s.to - s.from
		m.above -= n
		fresh -= min(n, to-s.from)
		m.floor = max(m.floor, s.to)
		m.remove(0, 0)
	}
	return fresh
}

// Marked reports whether a sequence is marked.
func (m *Marks) Marked(seq uint64) bool { return m.Unmarked(seq) != seq }

// Unmarked returns the first sequence from one on that is not marked.
func (m *Marks) Unmarked(seq uint64) uint64 {
	if seq <= m.floor {
		return m.floor
	}
	if i, j := m.find(seq); i < len(m.blocks) && m.blocks[i][j].from <= seq {
		return m.blocks[i][j].to
	}
	return seq
}

// find returns where the first span is that ends at seq or later.
func (m *Marks) find(seq uint64) (i, j int) {
	n := len(m.blocks)
	if n == 0 {
		return 0, 0
	}
	if b := m.blocks[n-1]; b[len(b)-1].to < seq { // most marks are near the end
		return n, 0
	}
	i = sort.Search(n, func(i int) bool { b := m.blocks[i]; return b[len(b)-1].to >= seq })
	b := m.blocks[i]
	return i, sort.Search(len(b), func(j int) bool { return b[j].to >= seq })
}

// insert puts a span before the one at a place.
func (m *Marks) insert(i, j int, s span) {
	m.spans++
	if i == len(m.blocks) {
		if i == 0 || len(m.blocks[i-1]) == blockSpans {
			m.blocks = append(m.blocks, append(make([]span, 0, 4), s))
			return
		}
		i--
		j = len(m.blocks[i])
	}
	if len(m.blocks[i]) == blockSpans {
		half := slices.Clone(m.blocks[i][blockSpans/2:])
		m.blocks[i] = m.blocks[i][:blockSpans/2]
		m.blocks = slices.Insert(m.blocks, i+1, half)
		if j > blockSpans/2 {
			i, j = i+1, j-blockSpans/2
		}
	}
	m.blocks[i] = slices.Insert(m.blocks[i], j, s)
}

// remove takes a span out.
func (m *Marks) remove(i, j int) {
	m.spans--
	switch b := m.blocks[i]; {
	case len(b) > 1 && j == 0:
		m.blocks[i] = b[1:]
	case len(b) > 1:
		m.blocks[i] = slices.Delete(b, j, j+1)
	case i == 0:
		m.blocks[0] = nil
		if m.blocks = m.blocks[1:]; len(m.blocks) == 0 {
			m.blocks = nil
		}
	default:
		m.blocks = slices.Delete(m.blocks, i, i+1)
	}
}

// AppendBinary appends a compact form of the marks to b. It implements
// [encoding.BinaryAppender].
func (m *Marks) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, format)
	b = binary.AppendUvarint(b, m.floor)
	b = binary.AppendUvarint(b, uint64(m.spans))
	at := m.floor
	for from, to := range m.All() {
		b = binary.AppendUvarint(b, from-at)
		b = binary.AppendUvarint(b, to-from)
		at = to
	}
	return b, nil
}

// UnmarshalBinary reads what AppendBinary wrote, and nothing else. It implements
// [encoding.BinaryUnmarshaler].
func (m *Marks) UnmarshalBinary(b []byte) error {
	if len(b) == 0 {
		return errors.New("queue: marks: no data")
	}
	if b[0] != format {
		return fmt.Errorf("queue: marks: in format %d, but this version knows format %d only", b[0], format)
	}
	b = b[1:]
	bad := false
	next := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 || size > 1 && b[size-1] == 0 {
			bad = true
			return 0
		}
		b = b[size:]
		return n
	}
	r := Marks{floor: next()}
	n := next()
	at := r.floor
	for range n {
		gap, length := next(), next()
		from := at + gap
		to := from + length
		if bad || gap == 0 || length == 0 || from < at || to < from {
			return errors.New("queue: marks: not as they are written")
		}
		r.insert(len(r.blocks), 0, span{from, to})
		r.above += length
		at = to
	}
	if bad || len(b) > 0 {
		return errors.New("queue: marks: not as they are written")
	}
	*m = r
	return nil
}
