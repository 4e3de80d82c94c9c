package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// runChecks run the reactor over the broker under test, and over a fake.
var runChecks = func() map[string][]check {
	all := map[string][]check{
		"RUN-1": {
			{name: "outcomes", do: run1},
			{name: "react", do: run1React},
		},
		"RUN-2": {{name: "concurrency", do: run2}, {name: "key", do: run2Key}},
		"RUN-3": {
			{name: "drain", do: run3Drain},
			{name: "timeout", do: run3Timeout},
		},
		"RUN-4": {
			{name: "extended", do: run4},
			{name: "second_try", do: run4Again},
			{name: "until_settled", do: run4Settling},
			{name: "while_draining", do: run4Draining},
		},
		"RUN-5": {
			{name: "info", do: run5Info},
			{name: "lost", do: run5Lost},
			{name: "lost_before_its_deadline", do: run5Gone},
			{name: "given_back", do: run5GivenBack},
		},
		"RUN-6": {
			{name: "panic", do: run6},
			{name: "recover", do: run6Recover},
		},
		"RUN-7": {{name: "default_backoff", do: run7}},
		"RUN-8": {{name: "ends", do: run8}},
		"RUN-9": {
			{name: "settled_later", do: run9},
			{name: "never_settled", do: run9Never},
		},
	}
	var onFake []check
	for n := 1; n <= 9; n++ {
		id := fmt.Sprintf("RUN-%d", n)
		for _, c := range all[id] {
			onFake = append(onFake, check{
				name: id + "_" + c.name, fake: true,
				do: func(e *env) {
					e.openBroker = e.openFake
					e.Slack = 0
					c.do(e)
				},
			})
		}
	}
	all["RUN-10"] = onFake
	return all
}()

// running is a reactor.Run in a goroutine of its own.
type running struct {
	env    *env
	cancel context.CancelFunc
	ended  chan struct{}
	// Below: after ended.
	err      error
	panicked any
}

func (e *env) start(src messaging.Source, h messaging.Handler, opts *messaging.Options) *running {
	ctx, cancel := context.WithCancel(e.ctx)
	r := &running{env: e, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer cancel()
		defer func() { r.panicked = recover() }()
		r.err = reactor.Run(ctx, src, h, opts)
	}()
	return r
}

// wait ends the check unless Run returns within d.
func (r *running) wait(d time.Duration) error {
	r.env.begin("waiting for Run to return")
	select {
	case <-r.ended:
	case <-time.After(d):
		r.env.failf("Run has not returned %v later", d)
	}
	if r.panicked != nil {
		r.env.failf("Run panicked: %v", r.panicked)
	}
	return r.err
}

// stop ends Run's context and expects it to return nil at once.
func (r *running) stop() {
	r.cancel()
	r.env.ok(r.wait(r.env.prompt()), "Run whose context ended")
}

// A call is one call of a handler.
type call struct {
	id      string
	attempt int
	at      time.Time
}

// calls keeps the calls of a handler.
type calls struct {
	mu   sync.Mutex
	list []call
}

// add notes a call and returns how many there were of that event before it.
func (c *calls) add(ctx context.Context, ev event.Event) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, other := range c.list {
		if other.id == ev.ID() {
			n++
		}
	}
	c.list = append(c.list, call{ev.ID(), reactor.InfoFrom(ctx).Attempt, time.Now()})
	return n
}

func (c *calls) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list)
}

func (c *calls) of(id string) []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []call
	for _, call := range c.list {
		if call.id == id {
			out = append(out, call)
		}
	}
	return out
}

// between ends the check unless the n-th call of the event (from 0) came that
// long after the one before it, and has the attempt n+1.
func (e *env) between(c *calls, id string, n int, atLeast, atMost time.Duration) {
	list := c.of(id)
	if len(list) <= n {
		e.failf("the handler was called %d times with event %s, want %d", len(list), id, n+1)
	}
	gap := list[n].at.Sub(list[n-1].at)
	if gap < atLeast || gap > atMost {
		e.failf("attempt %d of event %s began %v after the one before it, want %v to %v", list[n].attempt, id, gap, atLeast, atMost)
	}
	if list[n].attempt != n+1 {
		e.failf("call %d with event %s was attempt %d", n+1, id, list[n].attempt)
	}
}

// lenient is d on a clock that other things slow down.
func (e *env) lenient(d time.Duration) time.Duration {
	if e.Bubble {
		return d + e.Slack
	}
	return d + e.Slack + e.prompt()
}

func run1(e *env) {
	b := e.open()
	sub := e.sub()
	src := e.subscribe(b, sub)
	done, failing, rejected, later := e.event("run.ack"), e.event("run.fail"), e.event("run.reject"), e.event("run.later")
	errTest := errors.New("a failure")
	backoff := func(attempt int) time.Duration { return time.Duration(attempt) * e.AckWait / 4 }

	var handled calls
	var mu sync.Mutex
	settled := make(map[string][]reactor.Settlement)
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		n := handled.add(ctx, ev)
		switch {
		case ev.ID() == failing.ID() && n < 2:
			return errTest
		case ev.ID() == rejected.ID():
			return fmt.Errorf("wrapped: %w", reactor.Reject(errTest))
		case ev.ID() == later.ID() && n < 1:
			return fmt.Errorf("wrapped: %w", reactor.RetryAfter(errTest, e.AckWait))
		}
		return nil
	}, &messaging.Options{Backoff: backoff, Observer: &messaging.Observer{
		Settled: func(ev event.Event, _ reactor.Info, s reactor.Settlement) {
			mu.Lock()
			defer mu.Unlock()
			settled[ev.ID()] = append(settled[ev.ID()], s)
		},
	}})
	e.publish(b, done, failing, rejected, later)
	for end := time.Now().Add(4 * e.AckWait); handled.len() < 7 && time.Now().Before(end); {
		e.pause(e.AckWait / 20)
	}
	e.pause(2 * e.AckWait)
	r.stop()
	e.between(&handled, failing.ID(), 1, backoff(1), e.lenient(backoff(1)))
	e.between(&handled, failing.ID(), 2, backoff(2), e.lenient(backoff(2)))
	e.between(&handled, later.ID(), 1, e.AckWait, e.lenient(e.AckWait))
	for id, want := range map[string][]reactor.Result{
		done.ID():     {reactor.Acked},
		failing.ID():  {reactor.Retried, reactor.Retried, reactor.Acked},
		rejected.ID(): {reactor.Rejected},
		later.ID():    {reactor.Retried, reactor.Acked},
	} {
		if n := len(handled.of(id)); n != len(want) {
			e.failf("the handler was called %d times with event %s, want %d", n, id, len(want))
		}
		var got []reactor.Result
		for _, s := range settled[id] {
			e.ok(s.Err, "settle of event %s", id)
			if s.Outcome.Result != reactor.Acked && !errors.Is(s.Cause, errTest) {
				e.failf("event %s was %v with the cause %v", id, s.Outcome.Result, s.Cause)
			}
			got = append(got, s.Outcome.Result)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			e.failf("event %s was %v, want %v", id, got, want)
		}
	}
	if reactor.Reject(nil) != nil || reactor.RetryAfter(nil, time.Second) != nil {
		e.failf("Reject(nil) and RetryAfter(nil, …) must be nil")
	}
	src = e.subscribe(b, sub)
	e.fence(b, src, "run.ack")
	e.quiet(src, e.absence())
}

func run1React(e *env) {
	b := e.open()
	sub := e.sub("run.react")
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var handled calls
	ended := e.async(func() {
		e.ok(messaging.React(ctx, b, sub, func(ctx context.Context, ev event.Event) error {
			handled.add(ctx, ev)
			return nil
		}, nil), "React")
	})
	e.publish(b, e.events(10, "run.react")...)
	e.await("ten calls of the handler", func() bool { return handled.len() == 10 })
	cancel()
	e.takes(e.prompt(), "React whose context ended", ended)
	e.is(messaging.React(e.ctx, b, messaging.Subscription{Name: "-"}, func(context.Context, event.Event) error { return nil }, nil),
		messaging.ErrInvalid, "React with a bad name")
}

func run2(e *env) {
	for _, c := range []struct{ concurrency, maxInFlight, want int }{
		{0, 0, 1}, {1, 0, 1}, {3, 0, 3}, {20, 2, 2}, {4, 4, 4},
	} {
		b := e.open()
		sub := e.sub()
		sub.MaxInFlight = c.maxInFlight
		src := e.subscribe(b, sub)
		e.publish(b, e.events(20, "run.many")...)
		var mu sync.Mutex
		inside, most := 0, 0
		var handled calls
		r := e.start(src, func(ctx context.Context, ev event.Event) error {
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			defer func() {
				mu.Lock()
				inside--
				mu.Unlock()
			}()
			// Wait for the others, if there may be any, and for one too many.
			for end := time.Now().Add(e.AckWait / 2); time.Now().Before(end); {
				time.Sleep(e.AckWait / 200)
				mu.Lock()
				enough := most >= c.want && handled.len() > 0
				mu.Unlock()
				if enough {
					break
				}
			}
			time.Sleep(e.AckWait / 100)
			handled.add(ctx, ev)
			return nil
		}, &messaging.Options{Concurrency: c.concurrency})
		for end := time.Now().Add(30 * e.AckWait); handled.len() < 20 && time.Now().Before(end); {
			e.pause(e.AckWait / 50)
		}
		r.stop()
		if handled.len() != 20 {
			e.failf("%d of 20 events were handled with Concurrency %d and MaxInFlight %d", handled.len(), c.concurrency, c.maxInFlight)
		}
		if most != c.want {
			e.failf("%d handlers ran at once with Concurrency %d and MaxInFlight %d, want %d", most, c.concurrency, c.maxInFlight, c.want)
		}
	}
}

// errTemporary is what a broker out of reach answers.
var errTemporary = errors.New("the broker is away")

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
		time.Sleep(e.AckWait / 4)
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

func run7(e *env) {
	for _, attempt := range []int{math.MinInt, -1, 0, 1, 2, 3, 9, 10, 11, 62, 63, 64, 65, 1000, math.MaxInt32, math.MaxInt} {
		top := min(100*time.Millisecond<<(min(max(attempt, 1), 20)-1), time.Minute)
		for range 50 {
			if d := reactor.Exponential(100*time.Millisecond, time.Minute)(attempt); d < top/2 || d > top {
				e.failf("the backoff of attempt %d is %v, want %v to %v", attempt, d, top/2, top)
			}
		}
	}
	b := e.open()
	sub := e.sub()
	sub.AckWait = time.Hour
	src := e.subscribe(b, sub)
	ev := e.event("run.backoff")
	e.publish(b, ev)
	attempts := 4
	if e.Bubble {
		attempts = 15
	}
	var handled calls
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		if handled.add(ctx, ev)+1 < attempts {
			return errors.New("a failure")
		}
		return nil
	}, nil)
	for end := time.Now().Add(e.lenient(10 * time.Minute)); handled.len() < attempts && time.Now().Before(end); {
		e.pause(50 * time.Millisecond)
	}
	r.stop()
	for n := 1; n < attempts; n++ {
		top := min(100*time.Millisecond<<(n-1), time.Minute)
		e.between(&handled, ev.ID(), n, top/2, e.lenient(top))
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

// handler notes its call, and is content.
func (c *calls) handler(ctx context.Context, ev event.Event) error {
	c.add(ctx, ev)
	return nil
}
