package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

func run3Drain(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 6
	src := &wrapped{Source: e.subscribe(b, sub)}
	events := e.events(6, "run.drain")
	e.publish(b, events...)
	finish := make(chan struct{})
	var handled calls
	var ended atomic.Int64
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		handled.add(ctx, ev)
		defer ended.Add(1)
		select {
		case <-finish:
		case <-ctx.Done():
			return fmt.Errorf("the context ended: %w", context.Cause(ctx))
		}
		if ev.ID() == events[1].ID() {
			return errors.New("a failure")
		}
		return nil
	}, &messaging.Options{Concurrency: 2, DrainTimeout: e.long(), Backoff: func(int) time.Duration { return 0 }})
	e.await("two handlers", func() bool { return handled.len() == 2 })
	r.cancel()
	e.pause(e.AckWait)
	select {
	case <-r.ended:
		e.failf("Run returned while handlers ran")
	default:
	}
	if n := ended.Load(); n != 0 {
		e.failf("%d handlers had their contexts cancelled before DrainTimeout", n)
	}
	close(finish)
	e.ok(r.wait(e.prompt()), "Run whose context ended")
	if n := ended.Load(); n != 2 || handled.len() != 2 {
		e.failf("of two handlers that ran %d had ended when Run returned, and %d were called", n, handled.len())
	}
	if src.closes.Load() == 0 {
		e.failf("Run has not closed the source")
	}
	_, err := src.Receive(e.ctx)
	e.is(err, messaging.ErrClosed, "Receive of a source that Run has closed")

	// One was acked, one failed, and the rest has never been anywhere.
	got := make(map[string]int)
	src2 := e.subscribe(b, sub)
	for range 5 {
		d := e.receive(src2)
		got[d.Value.ID()] = d.Info.Attempt
		e.ack(d)
	}
	for i, ev := range events {
		want := 1
		switch i {
		case 0:
			want = 0
		case 1:
			want = 2
		}
		if got[ev.ID()] != want {
			e.failf("after the drain event %d of 6 arrived with attempt %d, want %d (0: not at all)", i+1, got[ev.ID()], want)
		}
	}
	e.quiet(src2, e.absence())
}

func run3Timeout(e *env) {
	b := e.open()
	sub := e.sub()
	src := e.subscribe(b, sub)
	ev := e.event("run.timeout")
	e.publish(b, ev)
	timeout := e.AckWait / 2
	var handled calls
	var mu sync.Mutex
	var cause error
	var cut, returned time.Time
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		handled.add(ctx, ev)
		<-ctx.Done()
		mu.Lock()
		cause, cut = context.Cause(ctx), time.Now()
		mu.Unlock()
		time.Sleep(e.AckWait / 4) // stands for cleaning up
		mu.Lock()
		returned = time.Now()
		mu.Unlock()
		return ctx.Err()
	}, &messaging.Options{DrainTimeout: timeout})
	e.await("the handler", func() bool { return handled.len() == 1 })
	e.pause(e.AckWait)
	stopped := time.Now()
	r.cancel()
	e.ok(r.wait(e.lenient(timeout+e.AckWait)), "Run whose context ended")
	e.is(cause, reactor.ErrDrainTimeout, "the cause of the handler's context")
	if took := cut.Sub(stopped); took < timeout || took > e.lenient(timeout) {
		e.failf("the handler was cut off after %v, with DrainTimeout %v", took, timeout)
	}
	if returned.IsZero() {
		e.failf("Run returned before its handler")
	}
	src = e.subscribe(b, sub)
	e.ack(e.expect(src, ev, 1)) // released: interrupted is not failed
	e.quiet(src, e.absence())
}
