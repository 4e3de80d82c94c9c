package conformance

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

var rcvChecks = map[string][]check{
	"RCV-1": {
		{name: "context", do: rcv1Context},
		{name: "takes_nothing", do: rcv1TakesNothing},
		{name: "closed", do: rcv1Closed},
		{name: "deleted", do: adm3Members},
	},
	"RCV-2": {
		{name: "attempts", do: rcv2},
		{name: "across_members", do: rcv2Members},
		{name: "restart", do: rcv2Restart, needs: Durable | ExactAttempts, restart: true},
	},
	"RCV-3": {
		{name: "log_order", do: rcv3Order},
		{name: "strict_order", do: rcv3Strict},
		{name: "strict_order_and_death", do: rcv3StrictDeath},
		{name: "after_pauses", do: rcv3Pauses},
	},
	"RCV-4": {
		{name: "one_member", do: rcv4},
		{name: "two_members", do: rcv4Members},
	},
	"RCV-5": {
		{name: "no_event", do: rcv5, inject: true},
		{name: "not_valid", do: rcv5Lenient, inject: true},
		{name: "raw", do: rcv5Raw, inject: true},
	},
}

func rcv1Context(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	for _, d := range []time.Duration{0, e.AckWait / 10, e.AckWait / 2} {
		var began, ended time.Time
		var err error
		ctx, cancel := context.WithTimeout(e.ctx, d)
		e.takes(d+e.prompt(), "Receive whose deadline has passed", func() {
			began = time.Now()
			_, err = src.Receive(ctx)
			ended = time.Now()
		})
		cancel()
		e.is(err, context.DeadlineExceeded, "Receive with a timeout of %v", d)
		if early := began.Add(d).Sub(ended); early > 0 && d > 0 && e.Bubble {
			e.failf("Receive with a timeout of %v returned %v early", d, early)
		}

		ctx, cancel = context.WithCancel(e.ctx)
		time.AfterFunc(d, cancel)
		e.takes(d+e.prompt(), "Receive whose context was cancelled", func() { _, err = src.Receive(ctx) })
		e.is(err, context.Canceled, "Receive cancelled after %v", d)
	}

	// A context that is done already is refused, also if there are events.
	events := e.events(2, "rcv.done")
	e.publish(b, events...)
	for range 20 {
		var err error
		e.takes(e.prompt(), "Receive whose context is done", func() { _, err = src.Receive(done) })
		e.is(err, context.Canceled, "Receive with a context that is done")
	}
	e.accept(src, events...)
	e.fence(b, src, "rcv.done")
}

// A Receive that is cancelled at the moment an event arrives has it or has not.
func rcv1TakesNothing(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	began := time.Now()
	e.fence(b, src, "rcv.race")
	latency := time.Since(began) // 0 in a bubble, where all runs at one moment
	for range 200 {
		ev := e.event("rcv.race")
		ctx, cancel := context.WithCancel(e.ctx)
		var d *messaging.Delivery
		receive := e.async(func() {
			got, err := src.Receive(ctx)
			if err != nil && ctx.Err() == nil {
				e.failf("Receive: %w", err)
			}
			if err == nil {
				d = got
			}
		})
		abandon := e.async(func() {
			time.Sleep(rand.N(2*latency + 1))
			for range rand.N(50) {
				runtime.Gosched()
			}
			cancel()
		})
		e.publish(b, ev)
		abandon()
		receive()
		if d == nil {
			d = e.receive(src)
		}
		e.same(d, ev)
		e.attempt(d, 1)
		e.ack(d)
	}
	e.fence(b, src, "rcv.race")
}

func rcv1Closed(e *env) {
	for _, what := range []string{"source", "broker"} {
		b := e.open()
		src, other := e.subscribe(b, e.sub()), e.subscribe(b, e.sub())
		var err error
		waiting := e.async(func() { _, err = src.Receive(e.ctx) })
		e.pause(e.absence() / 2)
		if what == "broker" {
			e.closing(b)
		} else {
			e.closing(src)
		}
		e.takes(e.prompt(), "Receive during which the "+what+" was closed", waiting)
		e.is(err, messaging.ErrClosed, "Receive during which the %s was closed", what)
		done, cancel := context.WithCancel(e.ctx)
		cancel()
		e.takes(e.prompt(), "Receive on a closed "+what, func() { _, err = src.Receive(e.ctx) })
		e.is(err, messaging.ErrClosed, "Receive after the %s was closed", what)
		e.takes(e.prompt(), "Receive on a closed "+what+", with a context that is done", func() { _, err = src.Receive(done) })
		e.is(err, messaging.ErrClosed, "Receive after the %s was closed, with a context that is done", what)
		if what == "source" { // others go on
			ev := e.event("rcv.closed")
			e.publish(b, ev)
			e.takes(e.prompt(), "Receive on a closed "+what, func() { _, err = src.Receive(e.ctx) })
			e.is(err, messaging.ErrClosed, "Receive after the %s was closed, with an event to receive", what)
			e.accept(other, ev)
		}
	}
}

func rcv2(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	ev := e.event("rcv.attempt")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	e.retry(d, 0)
	d = e.expect(src, ev, 2)
	e.release(d)
	d = e.expect(src, ev, 2)
	d = e.lost(src, d, ev, 3)
	from, due := e.retryAfter(d, e.AckWait/2)
	d = e.again(src, ev, 4, from, due)
	for range 3 {
		e.release(d)
		d = e.expect(src, ev, 4)
	}
	for n := 5; n <= 12; n++ {
		e.retry(d, -time.Second)
		d = e.expect(src, ev, n)
	}
	if d.Info.MaxAttempts != 0 || d.Info.Last() {
		e.failf("a subscription without MaxAttempts delivers with Info.MaxAttempts %d", d.Info.MaxAttempts)
	}
	other := e.event("rcv.attempt")
	e.publish(b, other)
	e.accept(src, other) // counts for itself
	e.ack(d)
}

func rcv2Members(e *env) {
	b := e.open()
	sub := e.sub()
	ev := e.event("rcv.members")
	e.publish(b, ev)
	for n := 1; n <= 6; n++ {
		src, next := e.subscribe(b, sub), e.subscribe(b, sub)
		d, holder, other := e.either(src, next)
		e.attempt(d, n)
		e.retry(d, 0)
		if n%2 == 0 {
			// Let it be redelivered while both are there.
			d, holder, other = e.either(src, next)
			e.attempt(d, n+1)
		}
		e.closing(holder)
		e.closing(other)
		e.given("when a delivery had been %s, and both members closed", []string{"retried, received again and left unsettled", "retried"}[n%2])
	}
	e.ack(e.expect(e.subscribe(b, sub), ev, 7))
}

// A restart adds no attempts to what the member had not settled.
func rcv2Restart(e *env) {
	b := e.open()
	sub := e.short()
	src := e.subscribe(b, sub)
	events := e.events(20, "rcv.restart")
	e.publish(b, events...)
	e.ack(e.expect(src, events[0], 1))
	e.pause(e.AckWait / 2)
	b = e.restart(b)
	e.contains(e.collect(19, e.subscribe(b, sub)), events[1:])
}
