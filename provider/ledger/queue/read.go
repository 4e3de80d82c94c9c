package queue

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

const maxSeq = 1<<64 - 1

// Read returns entries from one on, in order and without gaps: at most so many,
// and of so many bytes of data, but at least one when there is one. 0 stands
// for no bound. When the entries from from on were deleted it starts with the
// first that was not: the caller sees that by Seq. It does not wait; without an
// entry at or after from it returns none.
//
// An entry that is damaged is a *DamageError, once Read starts with it. An error
// that may pass, such as too many open files, is another.
//
// Entries that are not among the latest are read from the database in rows, and
// Read ends with a row where it can: fewer than asked for does not mean that there
// are no more, and it is cheap to ask for many. 256 KiB are a good size.
func (l *Ledger) Read(from uint64, entries, bytes int) ([]Entry, error) {
	if entries <= 0 {
		entries = 1<<31 - 1
	}
	if bytes <= 0 {
		bytes = 1<<31 - 1
	}
	for {
		l.mu.Lock()
		first, next := l.first, l.next.Load()
		from = max(from, first)
		tail, start := l.latest(from, entries, bytes)
		l.mu.Unlock()
		if from >= next {
			return nil, nil
		}
		g := gather{from: from, to: next, entries: entries, bytes: bytes}
		if len(tail) > 0 {
			for _, r := range tail {
				if !g.take(r) {
					break
				}
			}
			return g.out, nil
		}
		g.to = min(next, start)
		err := l.scan(from, g.to, func(r *row) bool {
			if len(g.out) > 0 && !g.fits(r) {
				return false // else it would be read twice
			}
			r.data, r.ends = clone2(r.data, r.ends)
			return g.take(r)
		})
		if len(g.out) > 0 {
			return g.out, nil
		}
		if l.First() > from {
			continue // deleted while it was read
		}
		if err == nil {
			err = &DamageError{From: from, To: g.to, Err: fmt.Errorf("the rows are missing")}
		}
		return nil, err
	}
}

// latest returns the rows in memory that a Read from a sequence on may need,
// none when its first is not there. It returns too where those in memory start.
// Under mu.
func (l *Ledger) latest(from uint64, entries, bytes int) (rows []*row, start uint64) {
	if len(l.tail) == 0 {
		return nil, maxSeq
	}
	start = l.tail[0].first
	if from < start {
		return nil, start
	}
	for _, r := range l.tail[find(l.tail, from):] {
		if entries <= 0 || bytes < 0 {
			break
		}
		rows = append(rows, r)
		n, size := r.len(), len(r.data)
		if from > r.first {
			n, size = n-int(from-r.first), size-r.end(int(from-r.first)-1)
		}
		entries, bytes = entries-n, bytes-size
	}
	return rows, start
}

// clone2 copies two slices into one allocation.
func clone2(a, b []byte) ([]byte, []byte) {
	c := make([]byte, len(a)+len(b))
	n := copy(c, a)
	copy(c[n:], b)
	return c[:n:n], c[n:]
}

// A gather collects the entries of a Read.
type gather struct {
	from, to       uint64
	entries, bytes int // how many there may be
	out            []Entry
}

// take takes what it may from a row and reports whether it may take more.
func (g *gather) take(r *row) bool {
	i := 0
	if g.from > r.first {
		i = int(g.from - r.first)
	}
	n := r.len()
	g.out = slices.Grow(g.out, min(max(n-i, len(g.out)), g.entries-len(g.out)))
	for ; i < n; i++ {
		e := r.entry(i)
		if e.Seq >= g.to || len(g.out) >= g.entries || len(g.out) > 0 && len(e.Data) > g.bytes {
			return false
		}
		g.bytes -= len(e.Data)
		g.out = append(g.out, e)
	}
	return true
}

// fits reports whether it may take all of a row.
func (g *gather) fits(r *row) bool {
	return r.len() <= g.entries-len(g.out) && len(r.data) <= g.bytes
}

// iter returns an iterator over the rows that start in [from, to).
func (l *Ledger) iter(from, to uint64) (*pebble.Iterator, error) {
	return l.db.NewIter(&pebble.IterOptions{LowerBound: l.key(kindRow, from), UpperBound: l.key(kindRow, to)})
}

// rowAt returns the row at which an iterator stands. Unless it is copied it is
// valid until the iterator moves. A *DamageError is about the row, another error
// about reading it.
func (l *Ledger) rowAt(it *pebble.Iterator, copied bool) (*row, error) {
	first, err := l.seqOf(it.Key())
	if err != nil {
		return nil, err
	}
	b, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	if copied {
		b = bytes.Clone(b)
	}
	r, err := decodeRow(first, b)
	if err == nil {
		return r, nil
	}
	to := uint64(maxSeq)
	if it.Next() {
		if next, err := l.seqOf(it.Key()); err == nil {
			to = next
		}
	}
	return nil, &DamageError{From: first, To: to, Err: err}
}

// scan calls f for the rows from the one that holds from up to the one before
// to, until it returns false. A row is valid until f returns. A gap, and a row
// that does not parse, is a *DamageError.
func (l *Ledger) scan(from, to uint64, f func(*row) bool) error {
	it, err := l.iter(min(l.bottom.Load(), to), to)
	if err != nil {
		return l.damage(from, to, err)
	}
	defer it.Close()
	// To go on where a row ended costs less than to go back to where one starts.
	if start := l.key(kindRow, from); !it.SeekGE(start) || !bytes.Equal(it.Key(), start) {
		if !it.SeekLT(l.key(kindRow, from+1)) {
			if err := it.Error(); err != nil {
				return l.damage(from, to, err)
			}
			it.First()
		}
	}
	for ; it.Valid(); it.Next() {
		r, err := l.rowAt(it, false)
		if damage := (*DamageError)(nil); errors.As(err, &damage) {
			return clip(err, from, to)
		}
		if err != nil {
			return l.damage(from, to, err)
		}
		if r.next() <= from { // the row before a gap
			continue
		}
		if r.first > from {
			break
		}
		from = r.next()
		if !f(r) {
			return nil
		}
	}
	if err := it.Error(); err != nil {
		return l.damage(from, to, err)
	}
	if from < to {
		if it.Valid() {
			if next, err := l.seqOf(it.Key()); err == nil {
				to = next
			}
		}
		return &DamageError{From: from, To: to, Err: fmt.Errorf("rows are missing")}
	}
	return nil
}

// rowOf returns the row that holds an entry, nil when it was deleted.
func (l *Ledger) rowOf(seq uint64) (found *row, err error) {
	l.mu.Lock()
	if i := find(l.tail, seq); i < len(l.tail) && l.tail[i].first <= seq {
		found = l.tail[i]
	}
	l.mu.Unlock()
	if found != nil {
		return found, nil
	}
	err = l.scan(seq, seq+1, func(r *row) bool {
		c := *r
		c.data, c.ends = clone2(r.data, r.ends)
		found = &c
		return false
	})
	if err != nil && l.First() > seq {
		return nil, nil
	}
	return found, err
}

// clip narrows a DamageError to the entries that were asked for.
func clip(err error, from, to uint64) error {
	if e, ok := err.(*DamageError); ok {
		e.From, e.To = max(e.From, from), max(min(e.To, to), from+1)
	}
	return err
}

// damage returns the error of entries that the database cannot read. It looks
// for the next that it can: the block that is damaged may hold many rows. What is
// no damage, but may pass, is no *DamageError: the entries are not to be given up
// for it. A disk that cannot read says the same of a bad sector and of itself; it
// is the sector if the disk reads something behind it.
func (l *Ledger) damage(from, to uint64, err error) error {
	e := &DamageError{From: from, To: to, Err: err}
	corrupt := pebble.IsCorruptionError(err)
	if !corrupt && !errors.Is(err, syscall.EIO) {
		return fmt.Errorf("queue: read entries from %d on: %w", from, err)
	}
	for step := uint64(1); from+step < to && from+step > from; step *= 2 {
		it, err := l.iter(from+step, to)
		if err != nil {
			continue
		}
		if it.First() {
			if _, err := l.rowAt(it, false); err == nil && (corrupt || readDisk(it)) {
				if next, err := l.seqOf(it.Key()); err == nil {
					e.To = next
					it.Close()
					return e
				}
			}
		}
		it.Close()
	}
	if !corrupt {
		return fmt.Errorf("queue: read entries from %d on: %w", from, err)
	}
	return e
}

// readDisk reports whether an iterator has read anything from the disk.
func readDisk(it *pebble.Iterator) bool {
	s := it.Stats().InternalStats
	return s.BlockBytes > s.BlockBytesInCache
}
