package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestAckWaitIsExact holds an unsettled delivery to coming again at its
// deadline, to the nanosecond, for one who waits and for one who polls
// [ACK-2].
func TestAckWaitIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", AckWait: 10 * time.Second})
		publish(t, b, "a")
		d := receive(t, src, "a", 1)
		if left := time.Until(d.Deadline()); left != 10*time.Second {
			t.Errorf("the deadline is %v off, want 10s", left)
		}
		receiveAt(t, src, "a", 2, 10*time.Second)
		time.Sleep(10*time.Second - 1)
		receiveNothing(t, src)
		time.Sleep(time.Nanosecond)
		d = receive(t, src, "a", 3)

		time.Sleep(10*time.Second - 1)
		deadline, err := d.Extend(t.Context())
		want(t, err)
		if left := time.Until(deadline); left != 10*time.Second {
			t.Errorf("the extended deadline is %v off, want 10s", left)
		}
		receiveAt(t, src, "a", 4, 10*time.Second)
	})
}

// TestAckWaitStartsAtReceive holds a delivery that nobody receives to having
// no deadline [ACK-2].
func TestAckWaitStartsAtReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", AckWait: time.Second})
		publish(t, b, "a")
		time.Sleep(time.Hour)
		d := receive(t, src, "a", 1)
		time.Sleep(time.Second - 1)
		want(t, d.Ack(t.Context()))
	})
}

// TestRetryDelayIsExact holds a retry to its delay, and others to not waiting
// for it [ACK-3].
func TestRetryDelayIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s"})
		publish(t, b, "a", "b", "c")
		want(t, receive(t, src, "a", 1).Retry(t.Context(), time.Minute))
		want(t, receive(t, src, "b", 1).Retry(t.Context(), 0))
		want(t, receive(t, src, "b", 2).Retry(t.Context(), -time.Hour))
		want(t, receive(t, src, "b", 3).Retry(t.Context(), 24*time.Hour))
		want(t, receive(t, src, "c", 1).Ack(t.Context()))
		want(t, receiveAt(t, src, "a", 2, time.Minute).Ack(t.Context()))
		receiveAt(t, src, "b", 4, 24*time.Hour-time.Minute)
	})
}

// TestRedeliveryOrder holds what is due to coming before what is new, the
// longest due first, and among equals in the order of their return.
func TestRedeliveryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s"})
		publish(t, b, "a", "b", "c", "d", "e", "f")
		da, db, dc, dd := receive(t, src, "a", 1), receive(t, src, "b", 1), receive(t, src, "c", 1), receive(t, src, "d", 1)
		want(t, da.Retry(t.Context(), 2*time.Second))
		want(t, db.Retry(t.Context(), 1*time.Second))
		time.Sleep(2 * time.Second)
		want(t, dd.Release(t.Context()))
		want(t, dc.Retry(t.Context(), 0))
		for _, next := range []struct {
			id      string
			attempt int
		}{{"b", 2}, {"a", 2}, {"d", 1}, {"c", 2}, {"e", 1}, {"f", 1}} {
			want(t, receive(t, src, next.id, next.attempt).Ack(t.Context()))
		}
		receiveNothing(t, src)
	})
}

// TestReleaseKeepsTheAttempt holds a release to no failure, for any number of
// them, and to reaching another member at once [ACK-9].
func TestReleaseKeepsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		one := subscribe(t, b, messaging.Subscription{Name: "s", MaxAttempts: 2})
		two := subscribe(t, b, messaging.Subscription{Name: "s", MaxAttempts: 2})
		publish(t, b, "a")
		for range 10 {
			want(t, receive(t, one, "a", 1).Release(t.Context()))
			want(t, receive(t, two, "a", 1).Release(t.Context()))
		}
		want(t, receive(t, one, "a", 1).Retry(t.Context(), 0))
		if d := receive(t, two, "a", 2); !d.Info.Last() || d.Info.MaxAttempts != 2 {
			t.Errorf("Info is %+v, want the last of 2 attempts", d.Info)
		}
	})
}

// TestLateSettle holds a settle of a lost delivery to changing nothing, of
// whoever has the event now [ACK-7].
func TestLateSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", AckWait: time.Second})
		publish(t, b, "a")
		old := receive(t, src, "a", 1)
		time.Sleep(time.Second)
		wantErr(t, old.Ack(t.Context()), messaging.ErrLost)
		now := receive(t, src, "a", 2)
		wantErr(t, old.Retry(t.Context(), 0), messaging.ErrLost)
		_, err := old.Extend(t.Context())
		wantErr(t, err, messaging.ErrLost)
		receiveNothing(t, src)
		want(t, now.Ack(t.Context()))
		time.Sleep(time.Hour)
		receiveNothing(t, src)
	})
}

// TestMaxInFlight holds a subscription to as many events as may be out, with
// members or waiting for a delay [RCV-4].
func TestMaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		sub := messaging.Subscription{Name: "s", MaxInFlight: 3, AckWait: time.Hour}
		one, two := subscribe(t, b, sub), subscribe(t, b, sub)
		publish(t, b, "a", "b", "c", "d", "e")
		da := receive(t, one, "a", 1)
		want(t, receive(t, two, "b", 1).Retry(t.Context(), time.Minute))
		dc := receive(t, one, "c", 1)
		receiveNothing(t, two)
		want(t, da.Ack(t.Context()))
		dd := receive(t, two, "d", 1)
		receiveNothing(t, one)
		want(t, dc.Release(t.Context())) // stays out
		receive(t, one, "c", 1)
		receiveNothing(t, one)
		receiveAt(t, one, "b", 2, time.Minute)
		want(t, dd.Reject(t.Context(), "no"))
		receive(t, one, "e", 1)
	})
}

// TestStrictOrder holds MaxInFlight 1 to the next event only after the last
// was acked or dead, through retries, losses and releases [RCV-3].
func TestStrictOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", MaxInFlight: 1, MaxAttempts: 4, AckWait: time.Second})
		for i := range 5 {
			publish(t, b, fmt.Sprint(i))
		}
		for i := range 5 {
			id := fmt.Sprint(i)
			want(t, receive(t, src, id, 1).Retry(t.Context(), time.Minute))
			receiveNothing(t, src)
			receiveAt(t, src, id, 2, time.Minute)
			d := receiveAt(t, src, id, 3, time.Second)
			want(t, d.Release(t.Context()))
			d = receive(t, src, id, 3)
			if i%2 == 0 {
				want(t, d.Ack(t.Context()))
				continue
			}
			want(t, d.Retry(t.Context(), 0))
			want(t, receive(t, src, id, 4).Retry(t.Context(), 0)) // the last: dead
		}
		receiveNothing(t, src)
	})
}
