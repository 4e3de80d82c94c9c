package conformance

import (
	"context"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// deadline ends the check unless the delivery is kept for AckWait since it was
// received, or extended, between the two times.
func (e *env) deadline(d *messaging.Delivery, ackWait time.Duration, from, to time.Time) {
	if got := d.Deadline(); got.Before(from.Add(ackWait)) || got.After(to.Add(ackWait)) {
		e.failf("the deadline is %v after the call began and %v after it returned, with AckWait %v",
			got.Sub(from), got.Sub(to), ackWait)
	}
}

func ack2(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	ev := e.event("ack.lost")
	e.publish(b, ev)
	before := time.Now()
	d := e.expect(src, ev, 1)
	e.deadline(d, e.AckWait, before, time.Now())
	for n := 2; n <= 3; n++ {
		if e.Bubble {
			e.quiet(src, time.Until(d.Deadline()))
		} else {
			e.quiet(src, e.AckWait/2)
		}
		d = e.lost(src, d, ev, n)
	}
	e.ack(d)
	e.quiet(src, 2*e.AckWait+e.Slack)
}

// AckWait runs from Receive, however long the event was waiting to be received.
func ack2Prefetched(e *env) {
	b := e.open()
	sub := e.short()
	sub.MaxInFlight = 8
	src := e.subscribe(b, sub)
	events := e.events(8, "ack.prefetched")
	e.publish(b, events...)
	e.accept(src, events[:2]...)
	e.pause(3 * e.AckWait)
	for _, ev := range events[2:5] {
		before := time.Now()
		d := e.expect(src, ev, 1)
		e.deadline(d, e.AckWait, before, time.Now())
		e.pause(e.AckWait / 2)
		e.ack(d)
	}
	before := time.Now()
	d := e.expect(src, events[5], 1)
	e.deadline(d, e.AckWait, before, time.Now())
	e.accept(src, events[6:]...)
	e.ack(e.lost(src, d, events[5], 2))
	e.quiet(src, 2*e.AckWait+e.Slack)
}

// Several deliveries are lost, each at its time; those that were settled in
// between are not.
func ack2Many(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	events := e.events(10, "ack.many")
	e.publish(b, events...)
	deadlines := make(map[string]time.Time)
	for i, ev := range events {
		d := e.expect(src, ev, 1)
		if i%3 == 0 {
			e.ack(d)
		} else {
			deadlines[ev.ID()] = d.Deadline()
		}
		e.tick()
	}
	for len(deadlines) > 0 {
		var next time.Time
		for _, t := range deadlines {
			if next.IsZero() || t.Before(next) {
				next = t
			}
		}
		d := e.receiveUntil(src, e.later(next).Add(1))
		if d == nil {
			e.failf("of %d deliveries that were not settled none came again until %v after the next deadline", len(deadlines), time.Since(next))
		}
		due, ok := deadlines[d.Value.ID()]
		if !ok {
			e.failf("event %s, attempt %d, arrived and was settled", d.Value.ID(), d.Info.Attempt)
		}
		if early := time.Until(due); early > 0 {
			e.failf("event %s, attempt %d, arrived %v before the first delivery's deadline", d.Value.ID(), d.Info.Attempt, early)
		}
		e.attempt(d, 2)
		e.ack(d)
		delete(deadlines, d.Value.ID())
	}
}

func ack5(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	ev := e.event("ack.extend")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	for range 3 {
		e.quiet(src, e.AckWait/2)
		before := time.Now()
		ctx, cancel := e.settling("Extend")
		deadline, err := d.Extend(ctx)
		cancel()
		e.ok(err, "Extend")
		e.deadline(d, e.AckWait, before, time.Now())
		if !deadline.Equal(d.Deadline()) {
			e.failf("Extend returned the deadline %v, the delivery has %v", deadline, d.Deadline())
		}
	}
	d = e.lost(src, d, ev, 2)
	_, err := d.Extend(e.ctx)
	e.ok(err, "Extend of a second delivery")
	e.ack(d)
	e.quiet(src, 2*e.AckWait+e.Slack)
}

func ack5Refused(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	events := e.events(2, "ack.extend")
	e.publish(b, events...)
	d, settled := e.expect(src, events[0], 1), e.expect(src, events[1], 1)
	e.ack(settled)
	_, err := settled.Extend(e.ctx)
	e.is(err, reactor.ErrSettled, "Extend of a settled delivery")
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	before := d.Deadline()
	if _, err := d.Extend(done); err != nil && !d.Deadline().Equal(before) {
		e.failf("Extend failed (%v), and moved the deadline by %v", err, d.Deadline().Sub(before))
	}
	e.pause(time.Until(d.Deadline()))
	late := d.Deadline()
	_, err = d.Extend(e.ctx)
	e.is(err, reactor.ErrLost, "Extend at the deadline")
	if !d.Deadline().Equal(late) {
		e.failf("Extend at the deadline moved it by %v", d.Deadline().Sub(late))
	}
	e.given("when the deadline had passed, and an Extend had come too late")
	second := e.again(src, events[0], 2, late, late)
	_, err = d.Extend(e.ctx)
	e.is(err, reactor.ErrLost, "Extend of a delivery that was lost")
	e.lost(src, second, events[0], 3) // the late Extend has not extended it
}

// A settle that comes late settles nothing, least of all the delivery that
// somebody else has by then.
func ack7(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	events := e.events(len(settles), "ack.late")
	e.publish(b, events...)
	var stale, fresh []*messaging.Delivery
	for _, ev := range events {
		stale = append(stale, e.expect(src, ev, 1))
	}
	e.pause(time.Until(stale[0].Deadline()))
	e.is(stale[0].Ack(e.ctx), reactor.ErrLost, "Ack at the deadline")
	for len(fresh) < len(stale) {
		d := e.receiveUntil(src, e.later(stale[len(stale)-1].Deadline()).Add(1))
		if d == nil {
			e.failf("of %d deliveries whose deadline passed without a settle %d came again", len(stale), len(fresh))
		}
		e.attempt(d, 2)
		fresh = append(fresh, d)
	}
	for i, s := range settles {
		e.is(s.settle(stale[i], e.ctx), reactor.ErrLost, "%s after the deadline", s.name)
		e.is(s.settle(stale[i], e.ctx), reactor.ErrLost, "a second %s after the deadline", s.name)
	}
	// All are still out, and nobody's but their second receiver's.
	for range 2 {
		for _, d := range fresh {
			_, err := d.Extend(e.ctx)
			e.ok(err, "Extend of a second delivery")
		}
		e.quiet(src, e.AckWait/2)
	}
	for _, d := range fresh {
		e.retry(d, 0)
	}
	for range fresh {
		d := e.receive(src)
		e.attempt(d, 3)
		e.ack(d)
	}
	e.quiet(src, 2*e.AckWait+e.Slack)
}

func ack7Closed(e *env) {
	for _, what := range []string{"source", "broker"} {
		b := e.open()
		sub := e.sub()
		src := e.subscribe(b, sub)
		events := e.events(len(settles), "ack.closed")
		e.publish(b, events...)
		var ds []*messaging.Delivery
		for _, ev := range events {
			ds = append(ds, e.expect(src, ev, 1))
		}
		if what == "source" {
			e.closing(src)
		} else {
			e.closing(b)
		}
		for i, s := range settles {
			e.is(s.settle(ds[i], e.ctx), reactor.ErrLost, "%s after the %s was closed", s.name, what)
		}
		_, err := ds[0].Extend(e.ctx)
		e.is(err, reactor.ErrLost, "Extend after the %s was closed", what)
		if what == "source" {
			e.contains(e.collect(len(events), e.subscribe(b, sub)), events)
		}
	}
}

// At the very deadline a settle either lands or does not, and the broker and
// the member agree on it.
func ack7Fenced(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	const n = 20
	events := e.events(n, "ack.fenced")
	e.publish(b, events...)
	acked := make(map[string]bool)
	var waits []func()
	acks := make([]error, n)
	for i, ev := range events {
		d := e.expect(src, ev, 1)
		before := time.Duration(i%4-2) * time.Nanosecond
		if !e.Bubble {
			before = time.Duration(i%8-6) * time.Millisecond
		}
		waits = append(waits, e.async(func() {
			time.Sleep(time.Until(d.Deadline()) + before)
			acks[i] = d.Ack(e.ctx)
		}))
	}
	for _, wait := range waits {
		wait()
	}
	lost := 0
	for i, err := range acks {
		if err == nil {
			acked[events[i].ID()] = true
			continue
		}
		e.is(err, reactor.ErrLost, "Ack close to the deadline")
		lost++
	}
	for range lost {
		d := e.receiveUntil(src, e.later(time.Now()).Add(e.prompt()))
		if d == nil {
			e.failf("%d acks were late, and not as many events came again", lost)
		}
		if acked[d.Value.ID()] {
			e.failf("event %s came again, and Ack had returned nil", d.Value.ID())
		}
		e.attempt(d, 2)
		e.ack(d)
	}
	e.quiet(src, 2*e.AckWait+e.Slack)
}

// A Receive has waited for it already when the member is closed.
func ack3Reopened(e *env) {
	b := e.open()
	sub := e.sub()
	src := e.subscribe(b, sub)
	ev := e.event("ack.reopened")
	e.publish(b, ev)
	from, due := e.retryAfter(e.expect(src, ev, 1), 2*e.AckWait)
	e.quiet(src, e.AckWait/2)
	e.closing(src)
	e.ack(e.again(e.subscribe(b, sub), ev, 2, from, due))
}
