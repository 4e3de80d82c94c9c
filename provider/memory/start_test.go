package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestPositions holds each Start to its exact first event [SUB-2]. The log has
// the events 1 to 6, stored a second apart, and 1 and 2 were discarded.
func TestPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxEvents: 4, DiscardOldest: true})
		began := time.Now()
		for i := range 6 {
			publish(t, b, fmt.Sprint(i+1))
			time.Sleep(time.Second)
		}
		tests := []struct {
			start messaging.Start
			first int // 7: the next one
		}{
			{messaging.StartFirst(), 3},
			{messaging.StartNew(), 7},
			{messaging.StartFrom(0), 3},
			{messaging.StartFrom(1), 3},
			{messaging.StartFrom(3), 3},
			{messaging.StartFrom(5), 5},
			{messaging.StartFrom(6), 6},
			{messaging.StartFrom(7), 7},
			{messaging.StartAt(began.Add(-time.Hour)), 3},
			{messaging.StartAt(began), 3},
			{messaging.StartAt(began.Add(3 * time.Second)), 4},
			{messaging.StartAt(began.Add(3*time.Second + 1)), 5},
			{messaging.StartAt(began.Add(4*time.Second - 1)), 5},
			{messaging.StartAt(began.Add(5 * time.Second)), 6},
			{messaging.StartAt(began.Add(5*time.Second + 1)), 7},
			{messaging.StartAt(time.Now()), 7},
		}
		var sources []messaging.Source
		for i, test := range tests {
			sources = append(sources, subscribe(t, b, messaging.Subscription{Name: fmt.Sprint(i), Start: test.start}))
		}
		for i, test := range tests {
			if test.first < 7 {
				receive(t, sources[i], fmt.Sprint(test.first), 1)
			} else {
				receiveNothing(t, sources[i])
			}
		}
		publish(t, b, "7")
		for i, test := range tests {
			if test.first == 7 {
				receive(t, sources[i], "7", 1)
			}
		}
	})
}

// TestStartFromTheFuture holds StartFrom to the first event of that sequence
// or a higher one, though the log is not there yet [SUB-2].
func TestStartFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", Start: messaging.StartFrom(3)})
		publish(t, b, "1", "2")
		receiveNothing(t, src)
		publish(t, b, "3", "4")
		wantIDs(t, src, "3", "4")
	})
}

// TestStartActsOnce holds a Subscribe under an existing name to its position
// [SUB-3, SUB-9], and Close of the last member to deleting nothing [CLS-2].
func TestStartActsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		publish(t, b, "a")
		src := subscribe(t, b, messaging.Subscription{Name: "s", Start: messaging.StartNew()})
		publish(t, b, "b", "c")
		want(t, receive(t, src, "b", 1).Ack(t.Context()))
		want(t, receive(t, src, "c", 1).Retry(t.Context(), time.Minute))
		want(t, src.Close())
		publish(t, b, "d")
		time.Sleep(time.Minute - 1)
		src = subscribe(t, b, messaging.Subscription{Name: "s", Start: messaging.StartFirst()})
		want(t, receive(t, src, "d", 1).Ack(t.Context()))
		receiveAt(t, src, "c", 2, 1)
	})
}

// TestExpires holds a subscription to living exactly that long without a
// member, and for ever with one [SUB-10].
func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		sub := messaging.Subscription{Name: "s", Expires: time.Minute, MaxAttempts: 1}
		one, two := subscribe(t, b, sub), subscribe(t, b, sub)
		time.Sleep(time.Hour)
		publish(t, b, "a", "b", "c")
		want(t, receive(t, two, "a", 1).Ack(t.Context()))
		want(t, one.Close())
		time.Sleep(time.Hour)
		want(t, receive(t, two, "b", 1).Reject(t.Context(), "no"))
		want(t, two.Close())
		want(t, one.Close()) // again: changes nothing

		time.Sleep(time.Minute - 1)
		one = subscribe(t, b, sub)
		want(t, receive(t, one, "c", 1).Release(t.Context()))
		want(t, one.Close())

		time.Sleep(time.Minute)
		sub.Start, sub.Expires = messaging.StartNew(), 0 // other settings: it is gone
		one = subscribe(t, b, sub)
		receiveNothing(t, one)
		letters := subscribe(t, b, messaging.Subscription{Name: "letters", DeadLettersOf: "s"})
		receive(t, letters, "b", 1) // they stay
	})
}

// TestTypes holds a subscription to the events of its types, each once, and
// the others to not being in its way [SUB-8].
func TestTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", Types: []string{"order.>", "order.*", "order.created"}, MaxInFlight: 2})
		for i, typ := range []string{"order", "orders", "order.created", "Order.created", "x.order.created", "order.created.late", "order.paid"} {
			e := newEvent(t, fmt.Sprint(i))
			e.SetType(typ)
			want(t, b.Publish(t.Context(), e))
		}
		wantIDs(t, src, "2", "5", "6")
	})
}
