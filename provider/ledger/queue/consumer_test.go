package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// The known faults of such toolkits.

func TestConsumerRedeliversWhatIsUnsettled(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	mustAppend(t, l, records(0, 20)...)
	c := consumer(t, l, s.table(), "c", nil)
	for range 15 {
		mustNext(t, c)
	}
	if err := c.Settle(2, 3, 5, 14); err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(2); err != nil {
		t.Errorf("Settle again: %v", err)
	}
	if err := c.Settle(1, 16); err == nil {
		t.Error("Settle of an entry that was not delivered: no error")
	}
	if floor, out := c.Settled(); floor != 1 || out != 11 {
		t.Errorf("floor %d, %d out, want 1, 11", floor, out)
	}
	if _, err := queue.NewConsumer(l, s.table(), "c", nil); err != nil {
		t.Errorf("a table opened elsewhere: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(1); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Settle after Close: %v, want ErrClosed", err)
	}
	if _, err := c.Next(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Next after Close: %v, want ErrClosed", err)
	}
	s.reopen()
	l = s.ledger(nil)
	tb := s.table()
	c = consumer(t, l, tb, "c", nil)
	defer c.Close()
	if _, err := queue.NewConsumer(l, tb, "c", nil); !errors.Is(err, queue.ErrInUse) {
		t.Errorf("a second consumer: %v, want ErrInUse", err)
	}
	var got []uint64
	for range 16 {
		got = append(got, mustNext(t, c).Seq)
	}
	want := []uint64{1, 4, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	idle(t, l, c)
}

// What is settled is on the disk within FlushDelay, without a Close.
func TestSettledIsFlushedInTime(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	mustAppend(t, l, records(0, 10)...)
	tb := s.table()
	for name, opts := range map[string]queue.ConsumerOptions{
		"delay": {FlushDelay: time.Millisecond},
		"count": {FlushDelay: time.Hour, FlushCount: 3},
	} {
		c := consumer(t, l, tb, name, &opts)
		defer c.Close()
		for range 3 {
			if err := c.Settle(mustNext(t, c).Seq); err != nil {
				t.Fatal(err)
			}
		}
		deadline := time.Now().Add(20 * time.Second)
		for {
			m, _, _, err := tb.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			if m.Floor() == 4 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: it was not flushed", name)
			}
		}
	}
}

func TestManyMembersShareOneConsumer(t *testing.T) {
	s := newStore(t)
	l := s.ledger(&queue.LedgerOptions{TailBytes: 1000})
	c := consumer(t, l, s.table(), "c", &queue.ConsumerOptions{Window: 10})
	const n = 2000
	var mu sync.Mutex
	var got []uint64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				e, err := c.Next(ctx)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				got = append(got, e.Seq)
				all := len(got) == n
				mu.Unlock()
				if err := c.Settle(e.Seq); err != nil {
					t.Error(err)
				}
				if all {
					cancel()
				}
			}
		})
	}
	p := producer(t, l, nil)
	for i := range 4 {
		wg.Go(func() {
			for k := range n / 4 {
				if err := p.Append(t.Context(), record(i*n+k)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(got)
	for i, seq := range got {
		if seq != uint64(i)+1 {
			t.Fatalf("delivery %d is entry %d", i+1, seq)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if m, _, _, err := s.table().Load("c"); err != nil || m.Floor() != n+1 || m.Ranges() != 0 {
		t.Errorf("saved: floor %d, %v, want %d", m.Floor(), err, n+1)
	}
}

func TestCleanerHoldsItsBounds(t *testing.T) {
	s := newStore(t)
	l := s.ledger(&queue.LedgerOptions{RowBytes: 30})
	tb := s.table()
	mustAppend(t, l, records(0, 10)...) // of 7 bytes each
	c := consumer(t, l, tb, "c", nil)
	defer c.Close()
	for range 8 {
		if err := c.Settle(mustNext(t, c).Seq); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	clean := func(opts queue.CleanerOptions, first uint64) {
		t.Helper()
		before := l.First()
		n, err := queue.NewCleaner(l, tb, &opts).Clean()
		if err != nil || l.First() != first || n != first-before {
			t.Errorf("%+v: deleted %d, %v, the first entry is %d, want %d", opts, n, err, l.First(), first)
		}
	}
	clean(queue.CleanerOptions{}, 1)
	clean(queue.CleanerOptions{MaxEntries: 8}, 3)
	clean(queue.CleanerOptions{MaxBytes: 5*7 + 6}, 6)
	clean(queue.CleanerOptions{MaxAge: time.Hour}, 6)
	clean(queue.CleanerOptions{MaxEntries: 1}, 9)
	clean(queue.CleanerOptions{MaxAge: 1, Force: true}, 11)
}

func TestQueue(t *testing.T) {
	dir := t.TempDir()
	q, err := queue.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Open(dir, nil); err == nil {
		t.Error("a second Open: no error")
	}
	c, err := q.Consumer("c", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Append(t.Context(), records(0, 3)...); err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(mustNext(t, c).Seq); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.Append(t.Context(), record(1)); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Append after Close: %v, want ErrClosed", err)
	}
	if _, err := q.Consumer("d", nil); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Consumer after Close: %v, want ErrClosed", err)
	}
	if q, err = queue.Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if c, err = q.Consumer("c", nil); err != nil {
		t.Fatal(err)
	}
	if e := mustNext(t, c); e.Seq != 2 {
		t.Errorf("after a restart entry %d is delivered, want 2", e.Seq)
	}
}
