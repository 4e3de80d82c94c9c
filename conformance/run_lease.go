package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

func run4(e *env) {
	b := e.open()
	sub := e.short()
	src := &wrapped{Source: e.subscribe(b, sub)}
	events := e.events(4, "run.slow")
	e.publish(b, events...)
	var handled calls
	var mu sync.Mutex
	var causes []error
	var done int
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		handled.add(ctx, ev)
		select {
		case <-time.After(7 * e.AckWait / 2):
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		done++
		causes = append(causes, context.Cause(ctx))
		return nil
	}, &messaging.Options{Concurrency: 4})
	for end := time.Now().Add(e.lenient(5 * e.AckWait)); time.Now().Before(end); {
		mu.Lock()
		enough := done == 4
		mu.Unlock()
		if enough {
			break
		}
		e.pause(e.AckWait / 20)
	}
	r.stop()
	for _, err := range causes {
		e.ok(err, "the context of a handler that took three times AckWait")
	}
	for _, ev := range events {
		if n := len(handled.of(ev.ID())); n != 1 {
			e.failf("event %s was handled %d times by a handler that takes three times AckWait", ev.ID(), n)
		}
	}
	src2 := e.subscribe(b, sub)
	e.fence(b, src2, "run.slow")
	e.quiet(src2, 2*e.AckWait+e.Slack)
}

// once expects events to have been handled once each, and to be settled.
func (e *env) once(b Broker, sub messaging.Subscription, handled *calls, events ...event.Event) {
	for _, ev := range events {
		if n := len(handled.of(ev.ID())); n != 1 {
			e.failf("event %s was handled %d times, want once", ev.ID(), n)
		}
	}
	src := e.subscribe(b, sub)
	e.fence(b, src, events[0].Type())
	e.quiet(src, 2*e.AckWait+e.Slack)
}

// An extension that fails is tried again before the deadline.
func run4Again(e *env) {
	b := e.open()
	sub := e.short()
	var tries atomic.Int64
	src := &wrapped{Source: e.subscribe(b, sub), extend: func() error {
		if tries.Add(1)%2 == 1 {
			return errTemporary
		}
		return nil
	}}
	ev := e.event("run.again")
	e.publish(b, ev)
	var handled calls
	h, causes := handled.slow(3 * e.AckWait)
	r := e.start(src, h, nil)
	select {
	case err := <-causes:
		e.ok(err, "the context of a handler with every other extension failing")
	case <-time.After(e.lenient(4 * e.AckWait)):
		e.failf("the handler has not returned")
	}
	r.stop()
	e.once(b, sub, &handled, ev)
}

// A delivery is extended until it is settled, not only until its handler ends.
func run4Settling(e *env) {
	b := e.open()
	sub := e.short()
	var mu sync.Mutex
	var until time.Time
	settled := false
	src := &wrapped{Source: e.subscribe(b, sub), settle: func(reactor.Outcome) error {
		mu.Lock()
		defer mu.Unlock()
		if until.IsZero() {
			until = time.Now().Add(5 * e.AckWait / 2)
		}
		if time.Now().Before(until) {
			return errTemporary
		}
		settled = true
		return nil
	}}
	ev := e.event("run.settling")
	e.publish(b, ev)
	var handled calls
	r := e.start(src, handled.handler, nil)
	for end := time.Now().Add(e.lenient(6 * e.AckWait)); time.Now().Before(end); {
		e.pause(e.AckWait / 20)
		mu.Lock()
		enough := settled
		mu.Unlock()
		if enough {
			break
		}
	}
	r.stop()
	e.once(b, sub, &handled, ev)
}

// And while Run waits for the last handlers.
func run4Draining(e *env) {
	b := e.open()
	sub := e.short()
	src := e.subscribe(b, sub)
	ev := e.event("run.draining")
	e.publish(b, ev)
	var handled calls
	h, causes := handled.slow(3 * e.AckWait)
	r := e.start(src, h, &messaging.Options{DrainTimeout: e.long()})
	e.await("the handler", func() bool { return handled.len() == 1 })
	r.cancel()
	e.ok(r.wait(e.lenient(4*e.AckWait)), "Run whose context ended")
	e.ok(<-causes, "the context of a handler that is waited for")
	e.once(b, sub, &handled, ev)
}

func run5Info(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxAttempts = 5
	src := e.subscribe(b, sub)
	ev := e.event("run.info")
	var mu sync.Mutex
	var received, carried []reactor.Info
	var after []context.Context
	r := e.start(src, func(ctx context.Context, _ event.Event) error {
		mu.Lock()
		defer mu.Unlock()
		carried = append(carried, reactor.InfoFrom(ctx))
		after = append(after, ctx)
		if len(carried) < 3 {
			return reactor.RetryAfter(errors.New("a failure"), 0)
		}
		return nil
	}, &messaging.Options{Observer: &messaging.Observer{
		Received: func(_ event.Event, info reactor.Info) {
			mu.Lock()
			defer mu.Unlock()
			received = append(received, info)
		},
	}})
	e.publish(b, ev)
	e.await("three calls of the handler", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(carried) == 3
	})
	r.stop()
	for i, info := range carried {
		if info.Attempt != i+1 || info.MaxAttempts != 5 || info.Last() {
			e.failf("the handler's call %d had attempt %d of %d", i+1, info.Attempt, info.MaxAttempts)
		}
		if o := received[i]; o.Attempt != info.Attempt || o.Sequence != info.Sequence || !o.Stored.Equal(info.Stored) {
			e.failf("the handler has the Info %+v, the observer %+v", info, o)
		}
		if after[i].Err() == nil {
			e.failf("a handler's context has not ended after the handler")
		}
	}
	if info := reactor.InfoFrom(e.ctx); info.Attempt != 0 {
		e.failf("a context that is no handler's has the Info %+v", info)
	}
}

// A delivery that cannot be extended is lost at its deadline.
func run5Lost(e *env) {
	b := e.open()
	sub := e.short()
	deadlines := make(chan time.Time, 10)
	src := &wrapped{Source: e.subscribe(b, sub), extend: func() error { return errTemporary }}
	src.received = func(d *messaging.Delivery) { deadlines <- d.Deadline() }
	ev := e.event("run.lost")
	e.publish(b, ev)
	causes := make(chan error, 10)
	times := make(chan time.Time, 10)
	r := e.start(src, func(ctx context.Context, _ event.Event) error {
		select {
		case <-ctx.Done():
		case <-time.After(e.lenient(3 * e.AckWait)):
		}
		times <- time.Now()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, nil)
	var first, at time.Time
	select {
	case at = <-times:
		first = <-deadlines
	case <-time.After(e.lenient(4 * e.AckWait)):
		e.failf("the handler has not returned")
	}
	e.is(<-causes, reactor.ErrLost, "the cause of the context of a handler whose delivery is lost")
	if early := first.Sub(at); early > 0 {
		e.failf("the handler's context was cancelled %v before the deadline", early)
	}
	if late := at.Sub(first); late > e.lenient(0) {
		e.failf("the handler's context was cancelled %v after the deadline", late)
	}
	r.cancel()
	r.wait(e.lenient(5 * e.AckWait))
}

// A delivery may be lost before its deadline: an extension says so.
func run5Gone(e *env) {
	b := e.open()
	sub := e.short()
	var gone atomic.Bool
	src := &wrapped{Source: e.subscribe(b, sub), extend: func() error {
		gone.Store(true)
		return reactor.ErrLost
	}}
	deadlines := make(chan time.Time, 10)
	src.received = func(d *messaging.Delivery) { deadlines <- d.Deadline() }
	src.settle = func(reactor.Outcome) error {
		if gone.Load() {
			return reactor.ErrLost
		}
		return nil
	}
	ev := e.event("run.gone")
	e.publish(b, ev)
	causes := make(chan error, 10)
	times := make(chan time.Time, 10)
	r := e.start(src, func(ctx context.Context, _ event.Event) error {
		select {
		case <-ctx.Done():
		case <-time.After(e.lenient(3 * e.AckWait)):
		}
		times <- time.Now()
		causes <- context.Cause(ctx)
		return nil
	}, nil)
	select {
	case at := <-times:
		if deadline := <-deadlines; e.Bubble && !at.Before(deadline) {
			e.failf("the handler's context was cancelled %v after the deadline: an extension had said before that the delivery is lost", at.Sub(deadline))
		}
	case <-time.After(e.lenient(4 * e.AckWait)):
		e.failf("the handler has not returned")
	}
	e.is(<-causes, reactor.ErrLost, "the cause of the context of a handler whose delivery is lost")
	r.cancel()
	r.wait(e.lenient(5 * e.AckWait))
}

// A delivery that a Close gave back is lost, too.
func run5GivenBack(e *env) {
	b := e.open()
	sub := e.short()
	src := e.subscribe(b, sub)
	ev := e.event("run.back")
	e.publish(b, ev)
	causes := make(chan error, 1)
	var handled calls
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		handled.add(ctx, ev)
		select {
		case <-ctx.Done():
		case <-time.After(e.lenient(3 * e.AckWait)):
		}
		causes <- context.Cause(ctx)
		return nil
	}, nil)
	e.await("the handler", func() bool { return handled.len() == 1 })
	e.closing(src)
	e.given("when the source had been closed, and the handler's delivery given back")
	e.is(r.wait(e.lenient(2*e.AckWait)), reactor.ErrClosed, "Run whose source was closed")
	e.is(<-causes, reactor.ErrLost, "the cause of the context of a handler whose source was closed")
	src = e.subscribe(b, sub)
	e.ack(e.expect(src, ev, 1))
	e.quiet(src, 2*e.AckWait+e.Slack)
}
