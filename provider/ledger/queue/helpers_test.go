package queue_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// A store is a database in memory that can be opened anew.
type store struct {
	t     testing.TB
	fs    vfs.FS
	db    *pebble.DB
	guard *queue.Guard
}

func newStore(t testing.TB) *store {
	t.Helper()
	s := &store{t: t, fs: vfs.NewMem()}
	s.open()
	t.Cleanup(func() {
		if s.db != nil {
			s.close()
		}
	})
	return s
}

func (s *store) open() {
	s.t.Helper()
	db, guard, err := queue.OpenDB("dir", &pebble.Options{FS: s.fs, MemTableSize: 1 << 20})
	if err != nil {
		s.t.Fatal(err)
	}
	s.db, s.guard = db, guard
}

func (s *store) close() {
	s.t.Helper()
	if err := s.db.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.db = nil
}

func (s *store) reopen() {
	s.t.Helper()
	s.close()
	s.open()
}

func (s *store) ledger(opts *queue.LedgerOptions) *queue.Ledger {
	s.t.Helper()
	var o queue.LedgerOptions
	if opts != nil {
		o = *opts
	}
	o.Failed = s.guard.Err
	l, err := queue.OpenLedger(s.db, []byte("l"), &o)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *store) table() *queue.Table { return queue.OpenTable(s.db, []byte("t")) }

// record returns a record whose ID and data are both about n.
func record(n int) queue.Record {
	r := queue.Record{Data: fmt.Appendf(nil, "entry %d", n)}
	copy(r.ID[:], fmt.Sprintf("%016d", n))
	return r
}

func records(from, to int) (rs []queue.Record) {
	for n := from; n < to; n++ {
		rs = append(rs, record(n))
	}
	return rs
}

func mustAppend(t testing.TB, l *queue.Ledger, rs ...queue.Record) {
	t.Helper()
	if _, err := l.Append(rs...); err != nil {
		t.Fatal(err)
	}
}

// readAll returns the data of all entries and fails when there is a gap.
func readAll(t testing.TB, l *queue.Ledger) (data []string) {
	t.Helper()
	seq := l.First()
	for {
		entries, err := l.Read(seq, 0, 64<<10)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			if seq != l.Next() {
				t.Fatalf("read ends at %d, want %d", seq, l.Next())
			}
			return data
		}
		for _, e := range entries {
			if e.Seq != seq {
				t.Fatalf("read entry %d, want %d", e.Seq, seq)
			}
			data = append(data, string(e.Data))
			seq++
		}
	}
}

func mustNext(t testing.TB, c *queue.Consumer) queue.Entry {
	t.Helper()
	e, err := c.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// idle fails unless the consumer has nothing to deliver: what is appended now
// comes next.
func idle(t testing.TB, l *queue.Ledger, c *queue.Consumer) {
	t.Helper()
	fence := l.Next()
	mustAppend(t, l, queue.Record{Data: []byte("fence")})
	if e := mustNext(t, c); e.Seq != fence {
		t.Fatalf("entry %d is delivered, want the fence %d", e.Seq, fence)
	}
}

func consumer(t testing.TB, l *queue.Ledger, tb *queue.Table, name string, opts *queue.ConsumerOptions) *queue.Consumer {
	t.Helper()
	c, err := queue.NewConsumer(l, tb, name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
