package conformance

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// What is published as one Receive begins and others end is had by one of them,
// while it waits.
func pub1Receives(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	for i := range 60 {
		ev := e.event("pub.receives")
		ctx, cancel := context.WithCancel(e.ctx)
		ending, end := context.WithCancel(ctx)
		got := make(chan *messaging.Delivery, 6)
		var waits []func()
		receive := func(ctx context.Context) {
			waits = append(waits, e.async(func() {
				d, err := src.Receive(ctx)
				if err != nil && ctx.Err() == nil {
					e.failf("Receive: %w", err)
				}
				if err == nil {
					got <- d
				}
			}))
		}
		if i%3 > 0 { // else one begins and none ends
			for range 4 {
				receive(ending)
			}
			e.tick()
		}
		receive(ctx)
		if i%3 > 1 { // else it begins with the Publish
			e.tick()
		}
		e.publish(b, ev)
		end()
		e.await("the event that was published as Receives began and ended", func() bool { return len(got) > 0 })
		d := <-got
		e.same(d, ev)
		e.attempt(d, 1)
		e.ack(d)
		cancel()
		for _, wait := range waits {
			wait()
		}
		if len(got) > 0 {
			e.failf("event %s was delivered twice", (<-got).Value.ID())
		}
	}
	meetings := 1000
	if !e.Bubble {
		meetings = 100
	}
	e.meet(b, src, e.events(meetings, "pub.receives"))
	e.fence(b, src, "pub.receives")
}

// meet publishes each event as the Receive for it begins: a little sooner or a
// little later.
func (e *env) meet(b messaging.Publisher, src messaging.Source, events []event.Event) {
	var had atomic.Int64
	received := e.async(func() {
		for i, ev := range events {
			for range i % 20 {
				runtime.Gosched()
			}
			e.accept(src, ev)
			had.Add(1)
		}
	})
	for i, ev := range events {
		e.publish(b, ev)
		all := func() bool { return had.Load() > int64(i) }
		for n := 0; n < 10_000 && !all(); n++ {
			runtime.Gosched()
		}
		e.await("the event that was published as a Receive began", all)
	}
	received()
}
