package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

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
