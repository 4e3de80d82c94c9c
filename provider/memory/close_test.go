package memory_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestCloseReleases holds Close to giving back what the member has: at once,
// in the same attempt, to a member that waits already [CLS-1].
func TestCloseReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		sub := messaging.Subscription{Name: "s", MaxAttempts: 1, MaxInFlight: 3}
		one, two := subscribe(t, b, sub), subscribe(t, b, sub)
		publish(t, b, "a", "b", "c")
		da := receive(t, one, "a", 1)
		db := receive(t, two, "b", 1)
		receive(t, one, "c", 1)
		var group sync.WaitGroup
		group.Go(func() {
			receiveAt(t, two, "a", 1, time.Second)
			receiveAt(t, two, "c", 1, 0)
		})
		time.Sleep(time.Second)
		want(t, one.Close())
		group.Wait()
		wantErr(t, da.Ack(t.Context()), messaging.ErrLost)
		want(t, db.Ack(t.Context()))
		_, err := one.Receive(t.Context())
		wantErr(t, err, messaging.ErrClosed)
		receiveNothing(t, two)
	})
}

// TestCloseWhileReceiving holds Close of a source and of a broker to ending
// the Receives that wait, and no others [RCV-1].
func TestCloseWhileReceiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		one := subscribe(t, b, messaging.Subscription{Name: "s"})
		two := subscribe(t, b, messaging.Subscription{Name: "s"})
		other := subscribe(t, b, messaging.Subscription{Name: "other"})
		ends := make(map[messaging.Source]*ending)
		for _, src := range []messaging.Source{one, two, other} {
			ends[src] = receiveUntilItEnds(t.Context(), src, 5)
		}
		synctest.Wait()
		want(t, one.Close())
		synctest.Wait()
		ends[one].check(t, 5)
		ends[two].check(t, 0)
		publish(t, b, "a")
		synctest.Wait()
		ends[two].check(t, 0) // it takes the event and goes on

		var group sync.WaitGroup
		for range 10 { // idempotent, and safe for concurrent use
			group.Go(func() { want(t, b.Close()) })
			group.Go(func() { want(t, two.Close()) })
		}
		group.Wait()
		synctest.Wait()
		ends[two].check(t, 5)
		ends[other].check(t, 5)
	})
}

// An ending counts the Receives of a source that returned ErrClosed.
type ending struct {
	mu sync.Mutex
	n  int
}

func receiveUntilItEnds(ctx context.Context, src messaging.Source, receivers int) *ending {
	e := new(ending)
	for range receivers {
		go func() {
			for {
				d, err := src.Receive(ctx)
				if err == messaging.ErrClosed {
					e.mu.Lock()
					defer e.mu.Unlock()
					e.n++
					return
				}
				if err != nil {
					return
				}
				_ = d.Ack(ctx)
			}
		}()
	}
	return e
}

func (e *ending) check(t *testing.T, n int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n != n {
		t.Errorf("%d Receives returned ErrClosed, want %d", e.n, n)
	}
}

// TestReceiveRefusals holds Receive to the order of its refusals, and to
// taking nothing then [RCV-1].
func TestReceiveRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s"})
		publish(t, b, "a")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			_, err := src.Receive(ended)
			wantErr(t, err, context.Canceled)
		}
		d := receive(t, src, "a", 1)
		want(t, d.Retry(ended, 0)) // a settle works though [ACK-8]
		receive(t, src, "a", 2)
		want(t, src.Close())
		_, err := src.Receive(ended)
		wantErr(t, err, messaging.ErrClosed)
	})
}

// TestCloseWhileBackingOff holds an event that waits for its retry delay to
// waiting on without members, and with new ones [CLS-2].
func TestCloseWhileBackingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s"})
		publish(t, b, "a")
		want(t, receive(t, src, "a", 1).Retry(t.Context(), time.Minute))
		want(t, src.Close())
		time.Sleep(10 * time.Second)
		src = subscribe(t, b, messaging.Subscription{Name: "s"})
		receiveNothing(t, src)
		receiveAt(t, src, "a", 2, 50*time.Second)
	})
}

// TestCloseBetween holds a member that is closed after it has taken an event
// and before its Receive returned it, to giving it back to one who waits
// [CLS-1].
func TestCloseBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxEvents: 2, DiscardOldest: true})
		sub := messaging.Subscription{Name: "s", MaxAttempts: 1, MaxInFlight: 1}
		two := subscribe(t, b, sub)
		var group sync.WaitGroup
		var one messaging.Source
		one, err := b.Subscribe(t.Context(), sub, func(context.Context, error) {
			// This Receive has the event 1 already, and tells of the loss of 0.
			group.Go(func() { receiveAt(t, two, "1", 1, time.Second) })
			time.Sleep(time.Second)
			want(t, one.Close())
		})
		want(t, err)
		publish(t, b, "0")
		publish(t, b, "1")
		publish(t, b, "2")
		_, err = one.Receive(t.Context())
		wantErr(t, err, messaging.ErrClosed)
		group.Wait()
	})
}

// TestReportHoldsUpNoOther holds a report that takes its time to being the
// trouble of the member whose it is.
func TestReportHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxEvents: 2, DiscardOldest: true})
		sub := messaging.Subscription{Name: "s", AckWait: time.Second}
		slow, err := b.Subscribe(t.Context(), sub, func(context.Context, error) { time.Sleep(time.Minute) })
		want(t, err)
		other := subscribe(t, b, sub)
		publish(t, b, "0")
		publish(t, b, "1")
		publish(t, b, "2")
		var group sync.WaitGroup
		group.Go(func() { want(t, receiveAt(t, slow, "1", 1, time.Minute).Ack(t.Context())) })
		synctest.Wait()
		want(t, receiveAt(t, other, "2", 1, 0).Ack(t.Context()))
		group.Wait()
	})
}
