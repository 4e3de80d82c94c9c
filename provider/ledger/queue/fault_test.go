package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

func TestFaultRestartBeforeTheFirstMarkSkipsOrRepeatsTheFirstEntry(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	mustAppend(t, l, records(0, 3)...)
	for range 3 { // nothing is settled: the first entry comes first each time
		c := consumer(t, l, s.table(), "c", nil)
		if e := mustNext(t, c); e.Seq != 1 || string(e.Data) != "entry 0" {
			t.Fatalf("the first delivery is entry %d, %q", e.Seq, e.Data)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		s.reopen()
		l = s.ledger(nil)
	}
	c := consumer(t, l, s.table(), "c", nil)
	mustNext(t, c)
	if err := c.Settle(1); err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.reopen()
	l = s.ledger(nil)
	c = consumer(t, l, s.table(), "c", nil)
	defer c.Close()
	if e := mustNext(t, c); e.Seq != 2 {
		t.Errorf("after entry 1 was settled the first delivery is entry %d, want 2", e.Seq)
	}
	// A name that registers on an empty ledger gets its first entry.
	empty, err := queue.OpenLedger(s.db, []byte("empty"), nil)
	if err != nil {
		t.Fatal(err)
	}
	c2 := consumer(t, empty, s.table(), "c2", nil)
	c2.Close()
	mustAppend(t, empty, record(0))
	c2 = consumer(t, empty, s.table(), "c2", nil)
	defer c2.Close()
	if e := mustNext(t, c2); e.Seq != 1 {
		t.Errorf("the first delivery is entry %d, want 1", e.Seq)
	}
}

func TestFaultCleanerDeletesWhatAnIdleConsumerHasNotRead(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	tb := s.table()
	consumer(t, l, tb, "idle", nil).Close()
	mustAppend(t, l, records(0, 100)...)
	busy := consumer(t, l, tb, "busy", nil)
	for range 100 {
		if err := busy.Settle(mustNext(t, busy).Seq); err != nil {
			t.Fatal(err)
		}
	}
	busy.Close()
	for _, opts := range []queue.CleanerOptions{
		{MaxEntries: 1}, {MaxBytes: 1}, {MaxAge: 1}, {Settled: true}, {MaxEntries: 1, Settled: true, Unclaimed: true},
	} {
		if n, err := queue.NewCleaner(l, tb, &opts).Clean(); n != 0 || err != nil {
			t.Errorf("%+v: deleted %d, %v, want none", opts, n, err)
		}
	}
	s.reopen()
	l, tb = s.ledger(nil), s.table()
	c := consumer(t, l, tb, "idle", nil)
	defer c.Close()
	if e := mustNext(t, c); e.Seq != 1 {
		t.Errorf("the idle consumer starts at %d, want 1", e.Seq)
	}
	// Told to go on, it does, and says what was dropped for whom.
	var drops []queue.Drop
	n, err := queue.NewCleaner(l, tb, &queue.CleanerOptions{MaxEntries: 30, Force: true, Dropped: func(d queue.Drop) { drops = append(drops, d) }}).Clean()
	if n != 70 || err != nil {
		t.Errorf("deleted %d, %v, want 70", n, err)
	}
	if diff := cmp.Diff([]queue.Drop{{Name: "idle", From: 1, To: 71}}, drops); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
}

func TestFaultCleanerDeletesEverythingWhenNoConsumerIsRegistered(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	mustAppend(t, l, records(0, 10)...)
	for _, opts := range []queue.CleanerOptions{{}, {MaxEntries: 1}, {MaxBytes: 1, Force: true}, {Settled: true}} {
		if n, err := queue.NewCleaner(l, s.table(), &opts).Clean(); n != 0 || err != nil {
			t.Errorf("%+v: deleted %d, %v, want none", opts, n, err)
		}
	}
	if n, err := queue.NewCleaner(l, s.table(), &queue.CleanerOptions{MaxEntries: 4, Unclaimed: true}).Clean(); n != 6 || err != nil {
		t.Errorf("told that nobody need have claimed it: deleted %d, %v, want 6", n, err)
	}
}

func TestFaultConsumerBehindTheTailJumpsSilently(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	mustAppend(t, l, records(0, 10)...)
	c := consumer(t, l, s.table(), "c", nil)
	defer c.Close()
	mustNext(t, c)
	e := mustNext(t, c)
	if err := c.SettleRange(5, 6); err != nil { // skips one that is not delivered
		t.Fatal(err)
	}
	if err := l.DeleteTo(8); err != nil {
		t.Fatal(err)
	}
	// What it has read ahead it may still deliver; then it must tell.
	var lost *queue.LostError
	next := e.Seq + 1
	for {
		e, err := c.Next(t.Context())
		if errors.As(err, &lost) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if next == 5 {
			next++
		}
		if e.Seq != next {
			t.Fatalf("entry %d is delivered, want %d or a *LostError", e.Seq, next)
		}
		if next++; next > 10 {
			break
		}
	}
	if lost == nil && next != 11 {
		t.Error("it ended before the last entry")
	}

	// One that has read nothing ahead knows exactly.
	c2 := consumer(t, l, s.table(), "c2", &queue.ConsumerOptions{Start: 1})
	defer c2.Close()
	_, err := c2.Next(t.Context())
	if diff := cmp.Diff(&queue.LostError{From: 1, To: 8, Entries: 7}, err, cmp.Comparer(func(a, b error) bool { return a.Error() == b.Error() })); diff != "" {
		t.Errorf("Next (-want +got):\n%s", diff)
	}
	if e := mustNext(t, c2); e.Seq != 8 {
		t.Errorf("then entry %d is delivered, want 8", e.Seq)
	}
	if err := l.DeleteTo(11); err != nil {
		t.Fatal(err)
	}
	c3 := consumer(t, l, s.table(), "c3", &queue.ConsumerOptions{Start: 4})
	defer c3.Close()
	if _, err := c3.Next(t.Context()); !errors.As(err, &lost) || lost.Entries != 7 {
		t.Errorf("of a ledger that is empty now: %v, want 7 lost", err)
	}
}

func TestFaultOpeningScansTheWholeFile(t *testing.T) {
	s := newStore(t)
	opts := &queue.LedgerOptions{RowBytes: 1}
	l := s.ledger(opts)
	mustAppend(t, l, records(0, 20_000)...)
	// Had it to read the rows between the first and the last, it would fail.
	for i := range uint64(10_000) {
		seq := 2 + i
		if err := s.db.Set([]byte{'l', 'e', 0, 0, 0, 0, 0, 0, byte(seq >> 8), byte(seq)}, []byte("damaged"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	s.reopen()
	l = s.ledger(opts)
	if l.Len() != 20_000 {
		t.Errorf("Len: %d, want 20000", l.Len())
	}
	mustAppend(t, l, record(1))
}

func TestFaultSequenceIsReused(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	next := uint64(1)
	for i := range 10 {
		mustAppend(t, l, records(0, i+1)...)
		next += uint64(i + 1)
		if i%2 == 0 {
			if err := l.DeleteTo(l.Next()); err != nil {
				t.Fatal(err)
			}
		}
		if i%3 == 0 {
			s.reopen()
			l = s.ledger(nil)
		}
		if l.Next() != next {
			t.Fatalf("the next entry is %d, want %d", l.Next(), next)
		}
	}
}

func TestFaultConsumerDiesWhenItsWindowStaysFull(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	mustAppend(t, l, records(0, 10)...)
	c := consumer(t, l, s.table(), "c", &queue.ConsumerOptions{Window: 3, Patience: time.Millisecond})
	defer c.Close()
	for range 3 {
		mustNext(t, c)
	}
	if err := c.Settle(1); err != nil {
		t.Fatal(err)
	}
	mustNext(t, c)
	for range 3 {
		_, err := c.Next(t.Context())
		var stuck *queue.StuckError
		if !errors.As(err, &stuck) || stuck.Oldest != 2 || stuck.Window != 3 {
			t.Fatalf("Next: %v, want that entry 2 holds it up", err)
		}
	}
	if err := c.Settle(2, 4); err != nil {
		t.Fatal(err)
	}
	if e := mustNext(t, c); e.Seq != 5 {
		t.Errorf("then entry %d is delivered, want 5", e.Seq)
	}
	// And a Next that waits is woken.
	mustNext(t, c)
	got := make(chan error, 1)
	c2 := consumer(t, l, s.table(), "c2", &queue.ConsumerOptions{Window: 1})
	defer c2.Close()
	mustNext(t, c2)
	go func() {
		_, err := c2.Next(t.Context())
		got <- err
	}()
	if err := c2.Settle(1); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
