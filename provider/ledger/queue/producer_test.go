package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

func producer(t testing.TB, l *queue.Ledger, opts *queue.ProducerOptions) *queue.Producer {
	p := queue.NewProducer(l, opts)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestConcurrentAppendsKeepEachCallersOrder(t *testing.T) {
	l := newStore(t).ledger(&queue.LedgerOptions{RowBytes: 500})
	p := producer(t, l, &queue.ProducerOptions{Duplicates: time.Hour, GroupEntries: 20, PendingEntries: 50})
	const callers, calls = 20, 30
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range calls {
				// Two records a call, the second twice.
				a, b := record(c*1000+2*i), record(c*1000+2*i+1)
				if err := p.Append(t.Context(), a, b, b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	seen := make([]int, callers)
	data := readAll(t, l)
	for i, d := range data {
		var n int
		if _, err := fmt.Sscanf(d, "entry %d", &n); err != nil {
			t.Fatal(err)
		}
		c := n / 1000
		if n%1000 != seen[c] {
			t.Fatalf("caller %d: entry %d comes after %d others", c, n%1000, seen[c])
		}
		seen[c]++
		if n%2 == 1 && data[i-1] != fmt.Sprintf("entry %d", n-1) {
			t.Errorf("entry %d does not follow the one of the same call", n)
		}
	}
	for c, n := range seen {
		if n != 2*calls {
			t.Errorf("caller %d has %d entries, want %d", c, n, 2*calls)
		}
	}
}

// stall lets the commits of a ledger wait in Grown.
type stall struct{ entered, leave chan struct{} }

func newStall() *stall { return &stall{make(chan struct{}), make(chan struct{})} }

func (s *stall) grown(uint64) { s.entered <- struct{}{}; <-s.leave }

func TestBackpressureHonoursTheContext(t *testing.T) {
	st := newStall()
	l := newStore(t).ledger(&queue.LedgerOptions{Grown: st.grown})
	p := queue.NewProducer(l, &queue.ProducerOptions{PendingEntries: 4, Duplicates: time.Hour})
	results := make(chan error, 10)
	call := func(ctx context.Context, from, to int) {
		results <- p.Append(ctx, records(from, to)...)
	}
	go call(t.Context(), 0, 4)
	<-st.entered
	ctx, cancel := context.WithCancel(t.Context())
	go call(ctx, 10, 11) // waits for room
	cancel()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("Append without room: %v, want that its context ended", err)
	}
	var done []int
	if err := p.AppendFunc(ctx, func(error) { done = append(done, 1) }, record(11)); !errors.Is(err, context.Canceled) {
		t.Errorf("AppendFunc with a context that is done: %v", err)
	}
	go call(t.Context(), 20, 30) // more than may ever be pending: waits to be alone
	go call(t.Context(), 30, 31)
	st.leave <- struct{}{}
	for range 2 {
		<-st.entered
		st.leave <- struct{}{}
	}
	for range 3 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	p.Close()
	if got := len(readAll(t, l)); got != 15 || p.Seen(record(10).ID) || len(done) > 0 {
		t.Errorf("%d entries, want 15", got)
	}
}

// What a caller passed is its own again once Append returned, whatever became of
// it.
func TestDataBelongsToTheCallerAfterAppend(t *testing.T) {
	fs, s := newSlowStore(t)
	l := s.ledger(nil)
	p := queue.NewProducer(l, nil)
	fs.block()
	go p.Append(t.Context(), record(0))
	<-fs.blocked
	ctx, cancel := context.WithCancel(t.Context())
	data := []byte("mine")
	result := make(chan error, 1)
	entered := make(chan struct{})
	go func() {
		close(entered)
		result <- p.Append(ctx, queue.Record{Data: data})
	}()
	<-entered
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	copy(data, "ugly")
	fs.release()
	p.Close()
	for _, d := range readAll(t, l) {
		if d == "ugly" {
			t.Error("what the caller did after Append was stored")
		}
	}
}

func TestAppendFuncCallsBackInOrder(t *testing.T) {
	l := newStore(t).ledger(nil)
	p := queue.NewProducer(l, &queue.ProducerOptions{GroupEntries: 3, PendingEntries: 10, Duplicates: time.Hour})
	var got []int
	for i := range 300 {
		n := i
		if i%10 == 9 {
			n = i - 1 // a duplicate
		}
		err := p.AppendFunc(t.Context(), func(err error) {
			if err != nil {
				t.Error(err)
			}
			got = append(got, i)
		}, record(n))
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			p.Append(t.Context(), record(i+1000)) // a fence: duplicates of what is stored are called at once
		}
	}
	p.Close()
	if !slices.IsSorted(got) || len(got) != 300 {
		t.Errorf("called back in the order %v", got)
	}
}

func TestLingerEndsWhenTheGroupIsFull(t *testing.T) {
	l := newStore(t).ledger(nil)
	p := queue.NewProducer(l, &queue.ProducerOptions{Linger: time.Hour, GroupEntries: 3})
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if err := p.Append(t.Context(), record(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	entries, err := l.Read(1, 0, 0)
	if err != nil || len(entries) != 3 || !entries[0].Stored.Equal(entries[2].Stored) {
		t.Errorf("%v, %v, want three entries of one commit", entries, err)
	}
	done := make(chan error, 1)
	if err := p.AppendFunc(t.Context(), func(err error) { done <- err }, record(3)); err != nil {
		t.Fatal(err)
	}
	p.Close() // does not linger
	if err := <-done; err != nil || l.Len() != 4 {
		t.Errorf("after Close: %d entries, %v", l.Len(), err)
	}
	p = producer(t, l, &queue.ProducerOptions{Linger: time.Millisecond})
	if err := p.Append(t.Context(), record(4)); err != nil || l.Len() != 5 {
		t.Errorf("after Linger: %d entries, %v", l.Len(), err)
	}
}

func TestClosedProducer(t *testing.T) {
	l := newStore(t).ledger(nil)
	p := queue.NewProducer(l, nil)
	p.Close()
	if err := p.Append(t.Context(), record(1)); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Append: %v, want ErrClosed", err)
	}
	if err := p.AppendFunc(t.Context(), func(error) { t.Error("called") }, record(1)); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("AppendFunc: %v, want ErrClosed", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}
