package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// receiveUntil receives one delivery, or returns nil when nothing came before
// the deadline. Any other error ends the check.
func (e *env) receiveUntil(src messaging.Source, deadline time.Time) *messaging.Delivery {
	e.begin("Receive until %v after the check began", deadline.Sub(e.began))
	ctx, cancel := context.WithDeadline(e.ctx, deadline)
	defer cancel()
	d, err := src.Receive(ctx)
	switch {
	case err == nil && d == nil:
		e.failf("Receive returned neither a delivery nor an error")
	case err == nil:
		return d
	case ctx.Err() == nil:
		e.failf("Receive: %w", err)
	}
	e.is(err, context.DeadlineExceeded, "Receive whose deadline has passed")
	return nil
}

// receive receives one delivery that is there already, or will be at once.
func (e *env) receive(src messaging.Source) *messaging.Delivery {
	d := e.receiveUntil(src, time.Now().Add(e.prompt()))
	if d == nil {
		e.failf("nothing arrived within %v", e.prompt())
	}
	return d
}

// expect receives one delivery, which must be of that event and attempt. An
// event that was retried or released may come after others that were on their
// way by then, so it is expected only where there are none.
func (e *env) expect(src messaging.Source, want event.Event, attempt int) *messaging.Delivery {
	d := e.receiveUntil(src, time.Now().Add(e.prompt()))
	if d == nil {
		e.failf("event %s, attempt %d, did not arrive within %v", want.ID(), attempt, e.prompt())
	}
	e.same(d, want)
	e.attempt(d, attempt)
	return d
}

// acceptAll expects events in any order at attempt 1, and acks them: for a
// subscription in which something was released, or had several members.
func (e *env) acceptAll(src messaging.Source, events ...event.Event) {
	e.contains(e.collect(len(events), src), events)
}

// accept expects events in that order at attempt 1, and acks them: for a
// subscription with one member since creation and nothing released [RCV-3].
func (e *env) accept(src messaging.Source, events ...event.Event) {
	for _, ev := range events {
		e.ack(e.expect(src, ev, 1))
	}
}

// again expects the event once more: not before notBefore, and, for the
// provider's slack, not much after due.
func (e *env) again(src messaging.Source, want event.Event, attempt int, notBefore, due time.Time) *messaging.Delivery {
	last := e.later(due)
	d := e.receiveUntil(src, last.Add(1)) // at last itself it is in time
	now := time.Now()
	switch {
	case d == nil:
		e.failf("event %s, attempt %d, did not arrive until %v after it was due", want.ID(), attempt, now.Sub(due))
	case now.Before(notBefore):
		e.failf("event %s, attempt %d, arrived %v before it was due", d.Value.ID(), d.Info.Attempt, notBefore.Sub(now))
	case now.After(last):
		e.failf("event %s, attempt %d, arrived %v after it was due", d.Value.ID(), d.Info.Attempt, now.Sub(due))
	}
	e.same(d, want)
	e.attempt(d, attempt)
	return d
}

// lost expects the redelivery of d, whose AckWait runs out. It may not come
// before the deadline that the member was told.
func (e *env) lost(src messaging.Source, d *messaging.Delivery, want event.Event, attempt int) *messaging.Delivery {
	e.given("when the deadline of attempt %d had passed, without a settle", d.Info.Attempt)
	defer e.given("")
	return e.again(src, want, attempt, d.Deadline(), d.Deadline())
}

// quiet ends the check if anything arrives before d has passed: in a bubble,
// until a nanosecond before.
func (e *env) quiet(src messaging.Source, d time.Duration) {
	began := time.Now()
	if got := e.receiveUntil(src, began.Add(d-1)); got != nil {
		e.failf("event %s, attempt %d, arrived %v later: nothing should within %v",
			got.Value.ID(), got.Info.Attempt, time.Since(began), d)
	}
}

// fence publishes a marker and expects it to be the next that arrives, in proof
// that nothing else was on its way. It needs a member that is alone, and that
// receives first attempts only, which then come in order [RCV-3].
func (e *env) fence(b messaging.Publisher, src messaging.Source, typ string) {
	marker := e.event(typ)
	e.publish(b, marker)
	e.ack(e.expect(src, marker, 1))
}

// same ends the check unless the delivery is of that event.
func (e *env) same(d *messaging.Delivery, want event.Event) {
	if got := d.Value; got.ID() != want.ID() {
		e.failf("wrong event: %q of type %q, attempt %d, arrived where %q of type %q should", got.ID(), got.Type(), d.Info.Attempt, want.ID(), want.Type())
	}
	if diff := difference(want, d.Value); diff != "" {
		e.failf("wrong event: %s", diff)
	}
}

func (e *env) attempt(d *messaging.Delivery, want int) {
	if d.Info.Attempt != want {
		e.failf("event %s has attempt %d, want %d", d.Value.ID(), d.Info.Attempt, want)
	}
}

// collect receives and acks n deliveries, from any of the sources, and returns
// their events by id. A second delivery of an event ends the check, and so does
// any attempt but the first.
func (e *env) collect(n int, sources ...messaging.Source) map[string]event.Event {
	got, _ := e.share(n, 0, sources...)
	return got
}

// share is collect that keeps each delivery for a time before it acks it, and
// tells how many of them each source had.
func (e *env) share(n int, keep time.Duration, sources ...messaging.Source) (map[string]event.Event, []int) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var mu sync.Mutex
	got := make(map[string]event.Event)
	counts := make([]int, len(sources))
	last := time.Now()
	timeout := time.AfterFunc(e.prompt(), cancel) // set anew by each arrival
	defer timeout.Stop()

	var waits []func()
	for i, src := range sources {
		waits = append(waits, e.async(func() {
			for {
				e.begin("Receive of one of %d sources", len(sources))
				d, err := src.Receive(ctx)
				if err != nil && ctx.Err() != nil {
					return
				}
				e.ok(err, "Receive")
				timeout.Reset(e.prompt() + keep)
				if keep > 0 {
					e.pause(keep)
				}
				e.attempt(d, 1)
				e.ack(d)
				mu.Lock()
				_, twice := got[d.Value.ID()+" "+d.Value.Source()]
				got[d.Value.ID()+" "+d.Value.Source()] = d.Value
				counts[i]++
				last = time.Now()
				all := len(got) == n
				mu.Unlock()
				if twice {
					e.failf("event %s was delivered twice", d.Value.ID())
				}
				if all {
					cancel()
				}
			}
		}))
	}
	for _, wait := range waits {
		wait()
	}
	if len(got) < n {
		e.failf("%d of %d events arrived, the last %v after the check began; the next should within %v",
			len(got), n, last.Sub(e.began), e.prompt()+keep)
	}
	return got, counts
}

// contains ends the check unless got is made of those events.
func (e *env) contains(got map[string]event.Event, want []event.Event) {
	for _, w := range want {
		g, ok := got[w.ID()+" "+w.Source()]
		if !ok {
			e.failf("event %s did not arrive", w.ID())
		}
		if diff := difference(w, g); diff != "" {
			e.failf("wrong event: %s", diff)
		}
	}
	if len(got) != len(want) {
		e.failf("%d events arrived, want %d", len(got), len(want))
	}
}
