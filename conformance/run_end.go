package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

func run6(e *env) {
	b := e.open()
	sub := e.sub()
	src := &wrapped{Source: e.subscribe(b, sub)}
	events := e.events(3, "run.panic")
	e.publish(b, events...)
	var handled calls
	var other atomic.Bool
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		handled.add(ctx, ev)
		if ev.ID() == events[0].ID() {
			for end := time.Now().Add(e.prompt()); handled.len() < 2 && time.Now().Before(end); {
				time.Sleep(e.AckWait / 100)
			}
			explode()
		}
		time.Sleep(e.AckWait / 4) // stands for work that the panic finds under way
		other.Store(ctx.Err() == nil)
		return nil
	}, &messaging.Options{Concurrency: 2, Backoff: func(int) time.Duration { return 0 }})
	select {
	case <-r.ended:
	case <-time.After(e.lenient(2 * e.AckWait)):
		e.failf("Run has not returned after a handler's panic")
	}
	p, ok := r.panicked.(*reactor.PanicError)
	switch {
	case r.panicked == nil:
		e.failf("Run returned %v after a handler's panic, and did not panic", r.err)
	case !ok:
		e.failf("Run panicked with %#v, want a *reactor.PanicError", r.panicked)
	case p.Value != "for a test":
		e.failf("Run panicked with the value %#v", p.Value)
	case !strings.Contains(string(p.Stack), "explode"), !strings.Contains(p.Error(), "explode"):
		e.failf("Run panicked without the handler's stack: %s", p.Stack)
	case !other.Load():
		e.failf("another handler was not waited for, or cut off, after a panic")
	case handled.len() != 2:
		e.failf("%d events were handled: Run went on after a panic", handled.len())
	case src.closes.Load() == 0:
		e.failf("Run has not closed the source after a panic")
	}
	src2 := e.subscribe(b, sub)
	got := make(map[string]int)
	for range 2 {
		d := e.receive(src2)
		got[d.Value.ID()] = d.Info.Attempt
		e.ack(d)
	}
	if got[events[0].ID()] != 2 || got[events[2].ID()] != 1 {
		e.failf("after a panic the three events have the attempts %d (want 2), %d (want 0: acked) and %d (want 1)",
			got[events[0].ID()], got[events[1].ID()], got[events[2].ID()])
	}
	e.quiet(src2, e.absence())
}

func explode() { panic("for a test") }

func run6Recover(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	events := e.events(2, "run.recover")
	e.publish(b, events...)
	var handled calls
	var mu sync.Mutex
	var causes []error
	r := e.start(src, reactor.Recover(func(ctx context.Context, ev event.Event) error {
		if n := handled.add(ctx, ev); ev.ID() == events[0].ID() && n == 0 {
			explode()
		}
		return nil
	}), &messaging.Options{Backoff: func(int) time.Duration { return 0 }, Observer: &messaging.Observer{
		Settled: func(_ event.Event, _ reactor.Info, s reactor.Settlement) {
			mu.Lock()
			defer mu.Unlock()
			if s.Cause != nil {
				causes = append(causes, s.Cause)
			}
		},
	}})
	e.await("three calls of the handler", func() bool { return handled.len() == 3 })
	r.stop()
	if list := handled.of(events[0].ID()); len(list) != 2 || list[1].attempt != 2 {
		e.failf("the event whose handler panicked was handled like this: %v", list)
	}
	if len(causes) != 1 {
		e.failf("one handler panicked, and %d failed: %v", len(causes), causes)
	}
	if p, ok := errors.AsType[*reactor.PanicError](causes[0]); !ok || !strings.Contains(string(p.Stack), "explode") {
		e.failf("Recover made the error %v, without the handler's stack", causes[0])
	}
}

func run8(e *env) {
	handler := func(context.Context, event.Event) error { return nil }
	b := e.open()
	closed := func(src *wrapped, how string) {
		if src.closes.Load() == 0 {
			e.failf("Run that %s has not closed the source", how)
		}
	}

	src := &wrapped{Source: e.subscribe(b, e.sub())}
	r := e.start(src, handler, nil)
	e.pause(e.AckWait / 10)
	r.stop()
	closed(src, "was told to stop")

	src = &wrapped{Source: e.subscribe(b, e.sub())}
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	e.ok(reactor.Run(ctx, src, handler, nil), "Run with a context that is done")
	closed(src, "was told to stop before it began")

	src = &wrapped{Source: e.subscribe(b, e.sub()), receive: func() error { return errTemporary }}
	r = e.start(src, handler, nil)
	e.is(r.wait(e.prompt()), errTemporary, "Run whose source ended by itself")
	closed(src, "ended with its source")

	for what, start := range map[string]func(src messaging.Source) error{
		"without a handler": func(src messaging.Source) error { return reactor.Run(e.ctx, src, nil, nil) },
		"with a bad Concurrency": func(src messaging.Source) error {
			return reactor.Run(e.ctx, src, handler, &messaging.Options{Concurrency: -1})
		},
	} {
		src = &wrapped{Source: e.subscribe(b, e.sub())}
		if err := start(src); err == nil {
			e.failf("Run %s returned nil", what)
		}
		closed(src, "is "+what)
	}

	src = &wrapped{Source: e.subscribe(b, e.sub())}
	r = e.start(src, handler, &messaging.Options{Concurrency: 3})
	e.publish(b, e.events(5, "run.ends")...)
	e.pause(e.AckWait / 10)
	e.closing(b)
	e.given("when the broker had been closed")
	e.is(r.wait(e.prompt()), messaging.ErrClosed, "Run whose broker was closed")
	closed(src, "ended with its broker")
}
