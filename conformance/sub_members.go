package conformance

import (
	"context"

	"github.com/catchment-events/catchment/messaging"
)

func sub5Split(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 8
	members := []messaging.Source{e.subscribe(b, sub), e.subscribe(b, sub), e.subscribe(b, sub)}
	events := e.events(60, "sub.split")
	publish := e.async(func() { e.publishIn(b, 20, events) })
	got, counts := e.share(len(events), e.AckWait/100, members...)
	publish()
	e.contains(got, events)
	for i, n := range counts {
		if n == 0 {
			e.failf("member %d of 3 got none of %d events: they got %v", i+1, len(events), counts)
		}
	}
	for _, m := range members {
		e.quiet(m, e.absence())
	}
}

// An event that one member holds is with nobody else, also if that is open to
// receive it, and goes on to another when the time comes.
func sub5OneAtATime(e *env) {
	b := e.open()
	sub := e.sub()
	one, two := e.subscribe(b, sub), e.subscribe(b, sub)
	ev := e.event("sub.held")
	e.publish(b, ev)
	d, holder, other := e.either(one, two)
	e.same(d, ev)
	e.quiet(other, e.absence())
	e.quiet(holder, e.absence())
	e.retry(d, 0)
	e.closing(holder)
	e.ack(e.expect(other, ev, 2))
	e.quiet(other, e.absence())
}

// either receives from whichever of two members gets something, and returns
// that member and the other.
func (e *env) either(one, two messaging.Source) (d *messaging.Delivery, holder, other messaging.Source) {
	type result struct {
		d             *messaging.Delivery
		holder, other messaging.Source
	}
	results := make(chan result, 2)
	ctx, cancel := context.WithTimeout(e.ctx, e.prompt())
	defer cancel()
	receive := func(m, n messaging.Source) func() {
		return func() {
			d, err := m.Receive(ctx)
			if err == nil {
				cancel()
				results <- result{d, m, n}
				return
			}
			if ctx.Err() == nil {
				e.failf("Receive: %w", err)
			}
		}
	}
	e.begin("Receive of one of two members")
	wait1, wait2 := e.async(receive(one, two)), e.async(receive(two, one))
	wait1()
	wait2()
	switch len(results) {
	case 0:
		e.failf("nothing arrived within %v", e.prompt())
	case 2:
		e.failf("two members received, events %s and %s: one was published", (<-results).d.Value.ID(), (<-results).d.Value.ID())
	}
	r := <-results
	return r.d, r.holder, r.other
}

// Also with the smallest window each member has its turn.
func sub5OneInFlight(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 1
	members := []messaging.Source{e.subscribe(b, sub), e.subscribe(b, sub)}
	events := e.events(40, "sub.turns")
	e.publish(b, events...)
	got, counts := e.share(len(events), e.AckWait/100, members...)
	e.contains(got, events)
	if counts[0] == 0 || counts[1] == 0 {
		e.failf("of two members that both received, one got nothing: they got %v", counts)
	}
}

// A member that does not receive keeps others from no more than its share, and
// from nothing once it has closed.
func sub5Idle(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 8
	idle := e.subscribe(b, sub)
	events := e.events(20, "sub.idle")
	e.publish(b, events...)
	e.pause(e.AckWait / 10) // for it to take what it will
	busy := e.subscribe(b, sub)
	got := e.collect(len(events)-sub.MaxInFlight/2, busy)
	e.closing(idle)
	for len(got) < len(events) {
		d := e.receive(busy)
		e.attempt(d, 1)
		e.ack(d)
		got[d.Value.ID()+" "+d.Value.Source()] = d.Value
	}
	e.contains(got, events)
	e.quiet(busy, e.absence())
}
