package conformance

import (
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

func rcv3Order(e *env) {
	b := e.open()
	events := e.events(300, "rcv.order")
	for i := 0; i < len(events); i += 2 {
		events[i].SetType("rcv.other")
	}
	e.publishIn(b, 30, events)
	src := e.subscribe(b, e.sub())
	var ds []*messaging.Delivery
	for _, ev := range events {
		ds = append(ds, e.expect(src, ev, 1))
	}
	for i := range ds {
		e.ack(ds[len(ds)-1-i]) // settling in another order changes nothing
	}
	more := e.events(10, "rcv.order")
	e.publish(b, more...)
	e.retry(e.expect(src, more[0], 1), e.long()/4)
	e.accept(src, more[1:]...)
	e.fence(b, src, "rcv.order")
}

func rcv3Strict(e *env) {
	b := e.open()
	sub := e.short()
	sub.MaxInFlight = 1
	src := e.subscribe(b, sub)
	events := e.events(6, "rcv.strict")
	e.publish(b, events[:3]...)

	d := e.expect(src, events[0], 1)
	e.given("with MaxInFlight 1, and %q out", events[0].ID())
	e.quiet(src, e.AckWait/2) // the next has to wait, ...
	e.given("with MaxInFlight 1")
	e.ack(d)
	d = e.expect(src, events[1], 1)
	from, due := e.retryAfter(d, 2*e.AckWait)
	d = e.again(src, events[1], 2, from, due) // ... retries included
	e.retry(d, 0)
	d = e.expect(src, events[1], 3)
	d = e.lost(src, d, events[1], 4)
	e.release(d)
	d = e.expect(src, events[1], 4)
	e.publish(b, events[3:]...)
	e.reject(d, "for a test")
	d = e.expect(src, events[2], 1)
	e.retry(d, 0)
	e.ack(e.expect(src, events[2], 2))
	e.accept(src, events[3:]...)

	// Two that receive at a time change nothing about it.
	more := e.events(20, "rcv.strict")
	e.publish(b, more...)
	var mu sync.Mutex
	next, inside := 0, 0
	var waits []func()
	for range 2 {
		waits = append(waits, e.async(func() {
			for {
				mu.Lock()
				done := next == len(more)
				mu.Unlock()
				if done {
					return
				}
				d := e.receiveUntil(src, time.Now().Add(e.AckWait/2))
				if d == nil {
					continue
				}
				mu.Lock()
				inside++
				now, want := inside, at(more, next)
				mu.Unlock()
				if now != 1 {
					e.failf("two events were out at a time, with MaxInFlight 1")
				}
				e.same(d, want)
				e.tick()
				mu.Lock()
				inside--
				next++
				mu.Unlock()
				e.ack(d)
			}
		}))
	}
	for _, wait := range waits {
		wait()
	}
}

// Where each failure kills or delays, the next event comes only after the one
// before it was acked or is a dead letter.
func rcv3StrictDeath(e *env) {
	b := e.open()
	sub := e.short()
	sub.MaxInFlight, sub.MaxAttempts = 1, 2
	src := e.subscribe(b, sub)
	events := e.events(5, "rcv.strict")
	e.publish(b, events...)
	letters := e.dead(sub)
	e.closing(e.subscribe(b, letters))
	buried := func(n int) {
		list := e.subscribe(b, letters)
		e.deadLetters(list, events[:n]...)
		e.quiet(list, e.AckWait/4)
		e.closing(list)
	}

	from, due := e.retryAfter(e.expect(src, events[0], 1), e.AckWait/2)
	e.given("with MaxInFlight 1, and %q waiting for its retry", events[0].ID())
	d := e.again(src, events[0], 2, from, due)
	e.given("with MaxInFlight 1, and MaxAttempts 2")
	e.quiet(src, time.Until(d.Deadline())/2)
	e.retry(d, e.AckWait/2) // the last: nothing is waited for
	d = e.expect(src, events[1], 1)
	e.lost(src, d, events[1], 2)
	d = e.receiveUntil(src, e.later(time.Now().Add(e.AckWait)).Add(1))
	if d == nil || d.Value.ID() != events[2].ID() {
		e.failf("after the last delivery of an event was lost the next arrived as %v", d)
	}
	e.retry(d, 0)
	e.reject(e.expect(src, events[2], 2), "for a test")
	buried(3)
	e.expect(src, events[3], 1)
	e.closing(src) // back it goes, before the one behind it
	src = e.subscribe(b, sub)
	d = e.expect(src, events[3], 1)
	e.quiet(src, e.AckWait/4)
	e.ack(d)
	e.ack(e.expect(src, events[4], 1))
}

func rcv4(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 3
	src := e.subscribe(b, sub)
	events := e.events(8, "rcv.window")
	e.publish(b, events...)
	var ds []*messaging.Delivery
	for _, ev := range events[:3] {
		ds = append(ds, e.expect(src, ev, 1))
	}
	e.given("with MaxInFlight 3")
	e.quiet(src, e.absence())
	// What waits for a retry is out, too.
	from, due := e.retryAfter(ds[0], 3*e.AckWait)
	e.quiet(src, e.AckWait)
	e.ack(ds[1])
	ds[1] = e.expect(src, events[3], 1)
	e.quiet(src, time.Until(from)/2)
	ds[0] = e.again(src, events[0], 2, from, due)
	e.quiet(src, e.absence())
	for _, d := range ds {
		e.ack(d)
	}
	for _, ev := range events[4:7] {
		e.expect(src, ev, 1)
	}
	e.quiet(src, e.absence())
}

func rcv4Members(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 4
	one, two := e.subscribe(b, sub), e.subscribe(b, sub)
	events := e.events(12, "rcv.window")
	e.publish(b, events...)
	var mu sync.Mutex
	var out []*messaging.Delivery
	end := time.Now().Add(e.absence())
	var waits []func()
	for _, src := range []messaging.Source{one, two, one, two} {
		waits = append(waits, e.async(func() {
			for {
				d := e.receiveUntil(src, end)
				if d == nil {
					return
				}
				mu.Lock()
				out = append(out, d)
				mu.Unlock()
			}
		}))
	}
	for _, wait := range waits {
		wait()
	}
	if len(out) > sub.MaxInFlight {
		e.failf("%d events were out at a time, with MaxInFlight %d", len(out), sub.MaxInFlight)
	}
	if len(out) < sub.MaxInFlight {
		e.failf("%d events were received in %v by members that all receive, with MaxInFlight %d", len(out), e.absence(), sub.MaxInFlight)
	}
	for _, d := range out {
		e.ack(d)
	}
	e.collect(len(events)-len(out), one, two)
}

// A member that is busy, and then is not, may give back what it has fetched: the
// order is kept.
func rcv3Pauses(e *env) {
	b := e.open()
	events := e.events(320, "rcv.pauses")
	e.publishIn(b, 80, events)
	src := e.subscribe(b, e.sub())
	for half := range slices.Chunk(events, 160) {
		e.accept(src, half[:120]...)
		for _, ev := range half[120:] {
			e.pause(e.AckWait / 25)
			e.accept(src, ev)
		}
	}
}
