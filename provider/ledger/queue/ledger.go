package queue

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// LedgerOptions are the settings of a ledger. The zero value and nil stand for
// the defaults.
type LedgerOptions struct {
	// RowBytes bounds how many bytes of entries stand under one key. A larger
	// entry has a row of its own. Default 64 KiB.
	RowBytes int

	// TailBytes bounds the memory that holds the latest entries, so that
	// readers that keep up do not touch the database. Default 8 MiB.
	TailBytes int

	// NoSync makes appends and deletions return before they are on the disk:
	// the end of the process may lose the last of them, not just the loss of
	// power, for the database writes behind. What is lost is always a tail,
	// and its sequences are used again. Default: everything is synced.
	NoSync bool

	// Grown, if not nil, is called after entries have become readable, with
	// the sequence of the next entry, by the goroutine that stored them and
	// with no lock held. Calls may overlap and overtake each other. It should
	// not block: it delays the appends that it tells of.
	Grown func(next uint64)

	// Failed, if not nil, is asked after each commit whether the database has
	// failed without saying so to who commits: a logger's Fatalf may know. An
	// error is the ledger's last, as one from the commit itself.
	Failed func() error
}

// A Ledger is an append-only sequence of entries in a database, numbered from 1
// without gaps. A number is never used twice, not even after everything was
// deleted. Its methods are safe for concurrent use.
//
// After an error of the database a ledger stores nothing more; what it holds can
// still be read. Opening the database anew is the cure: what had been
// acknowledged is there, and nothing else but perhaps the entries that met the
// error.
//
// A ledger starts no goroutines and need not be closed. The database must stay
// open as long as the ledger is in use, and must not hold two ledgers under one
// prefix at a time.
type Ledger struct {
	db     *pebble.DB
	prefix []byte
	opts   LedgerOptions
	next   atomic.Uint64 // changes under mu
	bottom atomic.Uint64 // no row that is read starts before: what was there costs time

	mu sync.Mutex
	// Below: under mu. What readers may see.
	first   uint64
	total   uint64 // bytes of all entries ever
	deleted uint64 // bytes of the entries before first
	tail    []*row // the latest rows
	weight  int    // of tail
	changed chan struct{}
	failure error

	wmu sync.Mutex
	// Below: under wmu. What has been handed to the database, though perhaps
	// not synced yet.
	planned meta
	end     uint64 // the next sequence
	bytes   uint64 // of all entries ever
	heads   []*row // the oldest rows, without their data
	swept   uint64 // rows before this one are gone from the database
	doom    doom   // rows that are to go next
	flying  *flight
}

// OpenLedger opens the ledger that stands under a prefix in a database, or
// starts one. Keys that begin with prefix belong to the ledger alone. It reads
// no more than the first and the last row, however long the ledger is. A ledger
// in a format of a newer version is an error.
func OpenLedger(db *pebble.DB, prefix []byte, opts *LedgerOptions) (*Ledger, error) {
	l := &Ledger{db: db, prefix: slices.Clone(prefix)}
	if opts != nil {
		l.opts = *opts
	}
	if l.opts.RowBytes <= 0 {
		l.opts.RowBytes = 64 << 10
	}
	if l.opts.TailBytes <= 0 {
		l.opts.TailBytes = 8 << 20
	}
	if err := l.load(); err != nil {
		return nil, fmt.Errorf("open ledger %q: %w", prefix, err)
	}
	return l, nil
}

// load reads the meta row and the last row.
func (l *Ledger) load() error {
	m := meta{first: 1}
	b, closer, err := l.db.Get(l.key(kindMeta, 0))
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		if err := l.db.Set(l.key(kindMeta, 0), m.encode(), pebble.Sync); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		m, err = decodeMeta(b)
		closer.Close()
		if err != nil {
			return err
		}
	}
	end, bytes := m.first, m.deleted
	last, err := l.lastRow()
	if err != nil {
		return err
	}
	if last != nil && last.next() > m.first {
		if err := l.findBottom(m.first); err != nil {
			return err
		}
	}
	if last != nil && last.next() > m.first {
		end = last.next()
		bytes = last.before + uint64(len(last.data))
		m.stored = max(m.stored, last.stored.UnixNano())
	}
	l.planned, l.end, l.bytes = m, end, bytes
	l.first, l.deleted, l.total = m.first, m.deleted, bytes
	l.next.Store(end)
	return nil
}

// findBottom notes where the row starts that holds the first entry.
func (l *Ledger) findBottom(first uint64) error {
	it, err := l.iter(0, maxSeq)
	if err != nil {
		return err
	}
	defer it.Close()
	if !it.SeekLT(l.key(kindRow, first+1)) {
		return it.Error()
	}
	seq, err := l.seqOf(it.Key())
	l.bottom.Store(seq)
	return err
}

func (l *Ledger) lastRow() (*row, error) {
	it, err := l.iter(0, maxSeq)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	if !it.Last() {
		return nil, it.Error()
	}
	return l.rowAt(it, true)
}

// First returns the sequence of the first entry that is not deleted. When there
// is none, it is that of the next.
func (l *Ledger) First() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// Next returns the sequence that the next entry will have.
func (l *Ledger) Next() uint64 { return l.next.Load() }

// Len returns the number of entries.
func (l *Ledger) Len() uint64 {
	n, _ := l.size()
	return n
}

// Bytes returns the bytes of all entries, as they were appended.
func (l *Ledger) Bytes() uint64 {
	_, n := l.size()
	return n
}

func (l *Ledger) size() (entries, bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next.Load() - l.first, l.total - l.deleted
}

// Err returns the error after which the ledger stores nothing more, or nil.
func (l *Ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// Changed returns a channel that is closed when entries have become readable
// after the call, or the ledger has failed. To wait for an entry without
// missing it, call Changed, then look at Next, then wait.
func (l *Ledger) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// Append stores the records in one commit, all or none, and returns the
// sequence of the first. It looks for no duplicates and heeds no bounds:
// producers do. An error that wraps ErrUnknown leaves open whether they are
// stored; another says that they are not.
func (l *Ledger) Append(records ...Record) (first uint64, err error) {
	if len(records) == 0 {
		return l.Next(), l.Err()
	}
	g := &group{}
	size := 0
	for _, r := range records {
		size += len(r.Data)
	}
	for i, r := range records {
		g.add(r.Data, l.opts.RowBytes, size-g.bytes, len(records)-i)
	}
	if err := l.commit(g); err != nil {
		return 0, err
	}
	return g.rows[0].first, nil
}

// DeleteTo deletes all entries before seq; a seq beyond Next stands for Next. A
// Read meanwhile returns what it saw or starts at the new First. Space is given
// back when the whole of a row is deleted, and not before the deletion is on the
// disk.
func (l *Ledger) DeleteTo(seq uint64) error {
	c, err := l.delete(seq)
	if c == nil || err != nil {
		return err
	}
	if err := l.land(c); err != nil {
		return err
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	s := &flight{batch: l.db.NewBatch(), quiet: true}
	if err := l.sweep(s, l.First()); err != nil || s.batch.Empty() {
		return err
	}
	return l.launch(s)
}

// delete launches what moves First to seq.
func (l *Ledger) delete(seq uint64) (*flight, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.Err(); err != nil {
		return nil, err
	}
	seq = min(seq, l.Next())
	if seq <= l.planned.first {
		return nil, nil
	}
	m := meta{first: seq, deleted: l.bytes, stored: l.planned.stored}
	from := seq
	if seq < l.end {
		r, err := l.rowOf(seq)
		if err != nil {
			return nil, err
		}
		m.deleted, from = r.beforeSeq(seq), r.first
	}
	c := &flight{batch: l.db.NewBatch()}
	c.meta(l, m)
	l.heads = slices.Clone(l.heads[min(find(l.heads, seq), len(l.heads)):])
	l.doom = doom{first: seq, rows: sweepRows, end: from}
	return c, l.launch(c)
}

// Since returns the sequence of the first entry that was stored at t or later;
// when there is none, that of the next entry.
func (l *Ledger) Since(t time.Time) (uint64, error) {
	lo, hi := l.First(), l.Next() // the entry is in [lo, hi]
	for lo < hi {
		mid := lo + (hi-lo)/2
		r, err := l.rowOf(mid)
		if err != nil {
			return 0, err
		}
		switch {
		case r == nil: // deleted meanwhile
			lo = max(mid+1, l.First())
		case r.stored.Before(t):
			lo = r.next()
		default:
			hi = max(lo, r.first)
		}
	}
	return min(lo, l.Next()), nil
}
