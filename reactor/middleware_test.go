package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// TestTimeout holds the middleware to ending a call's context after its limit, and
// to saying so in what the call fails with, and in nothing else.
func TestTimeout(t *testing.T) {
	const says = "longer than 5s"
	untilEnd := func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	tests := []struct {
		name string
		h    reactor.Handler[string]
		end  time.Duration // of the caller's context
		took time.Duration
		says bool
		is   error // nil: it returns nil
	}{
		{"in time", takesAll(5*time.Second - 1), time.Hour, 5*time.Second - 1, false, nil},
		{"a failure in time", func(context.Context, string) error { return errBoom }, time.Hour, 0, false, errBoom},
		{"too long", untilEnd, time.Hour, 5 * time.Second, true, context.DeadlineExceeded},
		{"too long and deaf", func(context.Context, string) error {
			time.Sleep(time.Minute)
			return errBoom
		}, time.Hour, time.Minute, true, errBoom},
		{"too long and done", takesAll(time.Minute), time.Hour, time.Minute, false, nil},
		{"the caller's context ends", untilEnd, time.Second, time.Second, false, context.Canceled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(test.end, cancel).Stop()
				began := time.Now()
				err := reactor.Timeout(test.h, 5*time.Second)(ctx, "a")
				if took := time.Since(began); took != test.took {
					t.Errorf("the call took %v, want %v", took, test.took)
				}
				if !errors.Is(err, test.is) || (err != nil && strings.Contains(err.Error(), says)) != test.says {
					t.Errorf("the call returned %v, want %v, that names the limit: %v", err, test.is, test.says)
				}
			})
		})
	}
}

// TestTimeoutOfAttempt holds the middleware to the whole time for each attempt,
// and to what the error means to Run.
func TestTimeoutOfAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "a")
		j := newJournal()
		h := func(ctx context.Context, v string) error {
			<-ctx.Done()
			j.add("#%d", reactor.InfoFrom(ctx).Attempt)
			if reactor.InfoFrom(ctx).Attempt == 3 {
				return reactor.Reject(ctx.Err())
			}
			return reactor.RetryAfter(ctx.Err(), time.Second)
		}
		r := start(t, b, reactor.Timeout(h, 5*time.Second), nil)
		time.Sleep(time.Minute)
		r.drain(t)
		if diff := cmp.Diff([]string{"5s #1", "11s #2", "17s #3"}, j.read()); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		b.checkAll(t, "rejected")
	})
}

// TestTimeoutDrain holds the middleware to not taking the end of a drain for its
// own [RUN-3].
func TestTimeoutDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		s := src.add("a")[0]
		var cause error
		h := reactor.Timeout(sleepFor(time.Hour), time.Minute)
		r := start(t, src, func(ctx context.Context, v string) error {
			cause = h(ctx, v)
			return cause
		}, &reactor.Options[string]{DrainTimeout: time.Second})
		synctest.Wait()
		r.drain(t)
		if cause != reactor.ErrDrainTimeout {
			t.Errorf("the call returned %v, want ErrDrainTimeout", cause)
		}
		checkResult(t, reactor.Released, s)
	})
}

// TestLimit holds the middleware to its turns: some at once, one in each interval
// after that, and as many again at most after a rest.
func TestLimit(t *testing.T) {
	tests := []struct {
		burst int
		want  []string
	}{
		{1, []string{"0s", "1s", "2s", "3s", "4s", "1h0m0s", "1h0m1s", "1h0m2s", "1h0m3s", "1h0m4s"}},
		{3, []string{"0s", "0s", "0s", "1s", "2s", "1h0m0s", "1h0m0s", "1h0m0s", "1h0m1s", "1h0m2s"}},
	}
	for _, test := range tests {
		for _, concurrency := range []int{1, 16} {
			t.Run(fmt.Sprintf("%d at once, concurrency %d", test.burst, concurrency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					src := newFake(time.Minute)
					j := newJournal()
					r := start(t, src, reactor.Limit(func(context.Context, string) error {
						j.add("")
						return nil
					}, time.Second, test.burst), &reactor.Options[string]{Concurrency: concurrency})
					src.add("a", "b", "c", "d", "e")
					time.Sleep(time.Hour)
					src.add("a", "b", "c", "d", "e")
					time.Sleep(time.Minute)
					r.drain(t)
					got := strings.Fields(strings.Join(j.read(), ""))
					if diff := cmp.Diff(test.want, got); diff != "" {
						t.Errorf("called after (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// TestLimitAfterPartOfAnInterval holds the middleware to the whole interval.
func TestLimitAfterPartOfAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := reactor.Limit(takesAll(0), 10*time.Second, 1)
		began := time.Now()
		for range 3 {
			if err := h(t.Context(), ""); err != nil {
				t.Errorf("the call returned %v", err)
			}
			time.Sleep(4 * time.Second)
		}
		if took := time.Since(began); took != 24*time.Second {
			t.Errorf("three calls with rests of 4s took %v, want 24s", took)
		}
	})
}

// TestLimitOfMany holds the middleware to a burst of any size.
func TestLimitOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := reactor.Limit(takesAll(0), time.Hour, math.MaxInt)
		began := time.Now()
		for range 1000 {
			if err := h(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("1000 calls took %v, want no time", d)
		}
	})
}

// TestLimitEnds holds the middleware to ending its wait when Run stops, or the
// delivery is lost: it does not call the handler, and that is no failure [RUN-3].
func TestLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		first := src.add("first")[0]
		called := 0
		r := start(t, src, reactor.Limit(func(context.Context, string) error {
			called++
			return nil
		}, time.Hour, 1), &reactor.Options[string]{Concurrency: 3})
		synctest.Wait()
		lost := src.put(&settler{value: "lost", onBeat: func(context.Context, int) error { return reactor.ErrLost }})
		waits := src.add("waits")[0]
		time.Sleep(31 * time.Second)
		late := src.add("late")[0]
		synctest.Wait()
		began := time.Now()
		r.drain(t)
		src.checkClosed(t, began)
		if called != 1 {
			t.Errorf("the handler was called %d times, want once", called)
		}
		checkResult(t, reactor.Acked, first)
		checkResult(t, 0, lost)
		checkResult(t, reactor.Released, waits, late)
	})
}

// TestLimitOutsideOfRun holds the middleware to the caller's context.
func TestLimitOutsideOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := reactor.Limit(takesAll(0), time.Hour, 1)
		if err := h(t.Context(), ""); err != nil {
			t.Errorf("the first call returned %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := h(ctx, ""); err == nil || time.Since(began) != time.Minute {
			t.Errorf("the second call returned %v after %v, want an error after 1m", err, time.Since(began))
		}
	})
}

// TestMiddlewareOutOfRange holds the middleware to panicking, when it is made, with
// what it cannot do.
func TestMiddlewareOutOfRange(t *testing.T) {
	h := takesAll(0)
	for want, build := range map[string]func(){
		"Timeout: limit is 0s":     func() { reactor.Timeout(h, 0) },
		"Limit: interval is -1ns":  func() { reactor.Limit(h, -1, 1) },
		"Limit: burst is 0":        func() { reactor.Limit(h, 1, 0) },
		"Breaker: failures is 0":   func() { reactor.Breaker(h, 0, 1) },
		"Breaker: open is 0s: mus": func() { reactor.Breaker(h, 1, 0) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if v := recover(); !strings.Contains(fmt.Sprint(v), want) {
					t.Errorf("it panicked with %v, want %s", v, want)
				}
			}()
			build()
		})
	}
}

// TestObservers holds an observer of several to telling them all, in their order.
func TestObservers(t *testing.T) {
	var got []string
	tell := func(name string) *reactor.Observer[string] {
		add := func(format string, args ...any) { got = append(got, name+" "+fmt.Sprintf(format, args...)) }
		return &reactor.Observer[string]{
			Received: func(v string, info reactor.Info) { add("received %s #%d", v, info.Attempt) },
			Settled: func(v string, info reactor.Info, s reactor.Settlement) {
				add("settled %s #%d %v", v, info.Attempt, s.Outcome.Result)
			},
			State:     func(name string, s reactor.Status) { add("state %s %v", name, s.State) },
			Error:     func(err error) { add("error %v", err) },
			Published: func(values []string, took time.Duration, err error) { add("published %v %v %v", values, took, err) },
		}
	}
	list := []*reactor.Observer[string]{tell("a"), nil, {}, tell("b")}
	o := reactor.Observers(list...)
	list[0] = nil // is of no consequence
	o.Received("v", reactor.Info{Attempt: 1})
	o.Settled("v", reactor.Info{Attempt: 2}, reactor.Settlement{Outcome: reactor.Outcome{Result: reactor.Acked}})
	o.State("r", reactor.Status{State: reactor.Paused})
	o.Error(errBoom)
	o.Published([]string{"v"}, time.Second, errBoom)
	var want []string
	for _, line := range []string{"received v #1", "settled v #2 acked", "state r paused", "error boom", "published [v] 1s boom"} {
		want = append(want, "a "+line, "b "+line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// TestObserverError holds Run to telling of an extension that failed, and not of
// one that came too late to matter [RUN-4].
func TestObserverError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		src.put(&settler{value: "a", onBeat: func(_ context.Context, try int) error {
			if try == 1 {
				return errBoom
			}
			return nil
		}})
		src.put(&settler{value: "b", onBeat: func(context.Context, int) error { return reactor.ErrSettled }})
		var got []error
		r := start(t, src, takesAll(12*time.Second), &reactor.Options[string]{Concurrency: 2,
			Observer: &reactor.Observer[string]{Error: func(err error) { got = append(got, err) }}})
		time.Sleep(time.Minute)
		r.drain(t)
		if len(got) != 1 || !errors.Is(got[0], errBoom) || !strings.Contains(got[0].Error(), "extend") {
			t.Errorf("it was told of %v, want the extension that failed", got)
		}
	})
}

// TestLimitGivenUp lets calls give up their wait: they take no turn of those that
// come later.
func TestLimitGivenUp(t *testing.T) {
	t.Run("by a timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(time.Minute, "a", "b")
			calls := 0
			h := reactor.Timeout(reactor.Limit(func(context.Context, string) error { calls++; return nil }, 2*time.Second, 1), time.Second)
			r := start(t, b, h, nil)
			time.Sleep(time.Hour)
			r.drain(t)
			if calls != 2 {
				t.Errorf("in an hour the handler was called %d times, want 2", calls)
			}
		})
	})
	t.Run("by a drain", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var at []time.Duration // under mu
			began := time.Now()
			h := reactor.Limit(func(context.Context, string) error {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(began))
				return nil
			}, time.Minute, 1)
			react := reactor.New("r", func(context.Context) (reactor.Source[string], error) {
				src := newFake(10 * time.Minute)
				src.add("1", "2", "3", "4", "5", "6", "7", "8", "9")
				return src, nil
			}, h, &reactor.Options[string]{Concurrency: 8})
			r := startFunc(t, react.Run)
			time.Sleep(time.Second)
			r.drain(t)
			r = startFunc(t, react.Run)
			time.Sleep(2*time.Minute + time.Second)
			r.drain(t)
			if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(at, want) {
				t.Errorf("called after %v, want %v", at, want)
			}
		})
	})
}
