package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestReuseLeaksNowhere drops events from the log, so that what kept them is used
// again for others, and holds deliveries of them, and their redeliveries, to what
// was published [EVT-5].
func TestReuseLeaksNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		b := memory.New(&memory.Options{MaxEvents: 10, DiscardOldest: true, Duplicates: time.Second})
		src := subscribe(t, b, messaging.Subscription{Name: "s", MaxInFlight: n, AckWait: time.Hour})
		var want []event.Event
		var held []*messaging.Delivery
		for i := range n {
			e := newEvent(t, fmt.Sprint(i))
			e.SetExtension("note", strings.Repeat(fmt.Sprint(i), 10))
			if err := e.SetData("text/plain", []byte(strings.Repeat(fmt.Sprint(i), i%400))); err != nil {
				t.Fatal(err)
			}
			want = append(want, event.Clone(e))
			if err := b.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			vandalise(t, e)
			held = append(held, receive(t, src, fmt.Sprint(i), 1))
			time.Sleep(time.Millisecond) // ids leave the window, too
		}
		for i, d := range held {
			if !event.Equal(d.Value, want[i]) {
				t.Fatalf("holds\n%v\nwant\n%v", d.Value, want[i])
			}
			vandalise(t, d.Value)
			if err := d.Retry(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			if d := receive(t, src, fmt.Sprint(i), 2); !event.Equal(d.Value, want[i]) {
				t.Fatalf("redelivered\n%v\nwant\n%v", d.Value, want[i])
			}
		}
	})
}

// TestAllocations bounds the allocations of an event with six attributes and three
// extensions, from Publish to Ack.
func TestAllocations(t *testing.T) {
	const n = 2000
	events := make([]event.Event, n)
	for i := range events {
		e, err := event.New("/shop/checkout", "order.placed", json.RawMessage(`{"order":4711}`))
		if err != nil {
			t.Fatal(err)
		}
		e.SetSubject("order/4711")
		for _, name := range []string{"traceparent", "partitionkey", "tenant"} {
			e.SetExtension(name, "some value")
		}
		events[i] = e
	}
	b := memory.New(nil)
	src := subscribe(t, b, messaging.Subscription{Name: "s"})
	ctx := context.Background()
	next := 0
	allocations := testing.AllocsPerRun(n-1, func() {
		var broker messaging.Publisher = b
		if err := broker.Publish(ctx, events[next]); err != nil {
			t.Fatal(err)
		}
		next++
		d, err := src.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%v allocations", allocations)
	if allocations > 11 {
		t.Errorf("%v allocations, want at most 11", allocations)
	}
}
