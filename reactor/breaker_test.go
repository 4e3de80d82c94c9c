package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// TestBreaker holds the middleware to opening after failures in a row, to trying
// once after the time, and to what that decides.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		j := newJournal()
		r := start(t, src, reactor.Breaker(func(_ context.Context, v string) error {
			j.add("%s", v)
			switch v {
			case "bad":
				return errBoom
			case "rejected":
				return reactor.Reject(errBoom)
			}
			return nil
		}, 3, 10*time.Second), nil)
		added := src.add("bad", "bad", "good", "bad", "bad", "rejected", "bad", "bad", "bad", "bad", "good", "good")
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		if n := len(src.in); n != 3 {
			t.Errorf("%d values are left when it is open, want 3", n)
		}
		if n, _ := src.receiving.read(); n != 0 {
			t.Error("Run receives while it is open")
		}
		time.Sleep(time.Minute)
		r.drain(t)
		want := []string{
			"0s bad", "0s bad", "0s good", "0s bad", "0s bad", "0s rejected", "0s bad", "0s bad", "0s bad",
			"10s bad", "20s good", "20s good",
		}
		if diff := cmp.Diff(want, j.read()); diff != "" {
			t.Errorf("called (-want +got):\n%s", diff)
		}
		for _, s := range added {
			if got := s.outcome().Result; got == reactor.Released || got == 0 {
				t.Errorf("%s was %v, want what the handler made of it", s.value, got)
			}
		}
	})
}

// TestBreakerTriesOnce holds the middleware to one call, whatever the concurrency,
// that shows whether it may close; what was received beside that is released, and
// has not failed.
func TestBreakerTriesOnce(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprintf("keyed %v", keyed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(time.Minute)
				publish := func(from int) {
					for i := range 16 {
						b.publish(fmt.Sprint(from + i))
					}
				}
				publish(0)
				time.AfterFunc(5*time.Second, func() { publish(16) })
				var mu sync.Mutex
				var calls []time.Duration
				failed := make(map[string]int)
				var g gauge
				began := time.Now()
				r := start(t, b, reactor.Breaker(func(ctx context.Context, v string) error {
					mu.Lock()
					calls = append(calls, time.Since(began))
					n := len(calls)
					if a := reactor.InfoFrom(ctx).Attempt; a != failed[v]+1 {
						t.Errorf("%s came in attempt %d after %d failures", v, a, failed[v])
					}
					if n <= 18 { // the first ones, and two trials
						failed[v]++
					}
					mu.Unlock()
					g.enter()
					defer g.leave()
					time.Sleep(time.Second)
					if n <= 18 {
						return reactor.RetryAfter(errBoom, 2*time.Second)
					}
					return nil
				}, 5, 10*time.Second), &reactor.Options[string]{Concurrency: 16, Key: map[bool]func(string) string{true: keyOf}[keyed]})
				time.Sleep(time.Hour)
				r.drain(t)
				b.checkAll(t, "acked")
				var first []time.Duration
				for _, at := range calls {
					if at > 0 && len(first) < 4 {
						first = append(first, at)
					}
				}
				// Open at 1 s; trials at 11 s and 22 s that fail, at 33 s one that does not.
				want := []time.Duration{11 * time.Second, 22 * time.Second, 33 * time.Second, 34 * time.Second}
				if diff := cmp.Diff(want, first); diff != "" {
					t.Errorf("called after (-want +got):\n%s", diff)
				}
				if !slices.ContainsFunc(b.history(), func(line string) bool { return strings.HasSuffix(line, " released") }) {
					t.Errorf("what was received beside a trial was not released:\n%v", b.history())
				}
			})
		})
	}
}

// TestBreakerPanics holds the middleware to counting a panic as a failure.
func TestBreakerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.add("a", "b", "c")
		r := start(t, src, reactor.Recover(reactor.Breaker(func(context.Context, string) error {
			panic("boom")
		}, 2, 10*time.Second)), nil)
		synctest.Wait()
		if n := len(src.in); n != 1 {
			t.Errorf("%d values are left after two panics, want 1", n)
		}
		began := time.Now()
		r.drain(t) // while it is open
		src.checkClosed(t, began)
	})
}

// TestBreakerShared holds the middleware to one count for several Runs.
func TestBreakerShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newBroker(time.Minute), newBroker(time.Minute)
		fails := true
		j := newJournal()
		h := reactor.Breaker(func(_ context.Context, v string) error {
			j.add("%s", v)
			time.Sleep(time.Second)
			if fails {
				return reactor.RetryAfter(errBoom, 5*time.Second)
			}
			return nil
		}, 2, 10*time.Second)
		first := start(t, a, h, nil)
		second := start(t, b, h, nil)
		a.publish("a/1")
		b.publish("b/1")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		fails = false
		a.publish("a/2")
		b.publish("b/2")
		time.Sleep(9*time.Second - 1)
		synctest.Wait()
		got := j.read()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"0s a/1", "0s b/1"}, got); diff != "" {
			t.Errorf("called (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		first.drain(t)
		second.drain(t)
		a.checkAll(t, "acked")
		b.checkAll(t, "acked")
		at := map[string]int{}
		for _, line := range j.read() {
			var when, v string
			fmt.Sscan(line, &when, &v)
			at[when]++
		}
		if diff := cmp.Diff(map[string]int{"0s": 2, "11s": 1, "12s": 2, "13s": 1}, at); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// TestBreakerAndPause holds a Reactor to receiving nothing while a breaker is open
// or it is paused, whichever ends first.
func TestBreakerAndPause(t *testing.T) {
	for _, test := range []struct {
		paused time.Duration
		want   []string
	}{
		{5 * time.Second, []string{"0s bad", "10s good"}},
		{15 * time.Second, []string{"0s bad", "15s good"}},
	} {
		t.Run(test.paused.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				src.add("bad", "good")
				j := newJournal()
				react := reactor.New("r", opens(src), reactor.Breaker(func(_ context.Context, v string) error {
					j.add("%s", v)
					if v == "bad" {
						return errBoom
					}
					return nil
				}, 1, 10*time.Second), nil)
				r := startFunc(t, react.Run)
				synctest.Wait()
				if err := react.Pause(t.Context()); err != nil {
					t.Errorf("Pause returned %v", err)
				}
				time.Sleep(test.paused)
				react.Resume()
				time.Sleep(time.Minute)
				r.drain(t)
				if diff := cmp.Diff(test.want, j.read()); diff != "" {
					t.Errorf("called (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestBreakerOutsideOfRun holds the middleware to having callers that are no Run
// wait, until it may be tried or their context ends.
func TestBreakerOutsideOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		fails := true
		h := reactor.Breaker(func(context.Context, string) error {
			g.enter()
			defer g.leave()
			time.Sleep(time.Second)
			if fails {
				return errBoom
			}
			return nil
		}, 1, 10*time.Second)
		if err := h(t.Context(), ""); err != errBoom {
			t.Errorf("the call returned %v", err)
		}
		fails = false
		began := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errBoom) })
		if err := h(ctx, ""); !errors.Is(err, errBoom) || time.Since(began) != time.Second {
			t.Errorf("the call returned %v after %v, want its context's cause after 1s", err, time.Since(began))
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := h(t.Context(), ""); err != nil {
					t.Errorf("the call returned %v", err)
				}
			})
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if now, _ := g.read(); now != 1 {
			t.Errorf("%d try, want one", now)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if now, _ := g.read(); now != 2 {
			t.Errorf("%d are called when it has closed, want the two that waited", now)
		}
		wg.Wait()
		if took := time.Since(began); took != 12*time.Second {
			t.Errorf("it took %v, want 12s", took)
		}
	})
}

// TestBreakerTrialReleased holds the middleware to learning nothing from a call
// that other middleware did not pass on.
func TestBreakerTrialReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := reactor.Limit(takesAll(0), time.Hour, 1)
		_ = limited(t.Context(), "") // the next waits for an hour
		var g gauge
		h := reactor.Breaker(func(ctx context.Context, v string) error {
			if v == "limited" {
				return limited(ctx, v)
			}
			g.enter()
			defer g.leave()
			time.Sleep(time.Second)
			return errBoom
		}, 1, 10*time.Second)
		_ = h(t.Context(), "")
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		go func() {
			if err := h(ctx, "limited"); err == nil {
				t.Error("the trial returned nil")
			}
		}()
		time.Sleep(12 * time.Second)
		for range 3 {
			go func() { _ = h(t.Context(), "") }()
		}
		synctest.Wait()
		if now, _ := g.read(); now != 0 {
			t.Errorf("%d are called beside the trial, want none", now)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if now, _ := g.read(); now != 1 {
			t.Errorf("%d are called, want one to try again", now)
		}
		time.Sleep(time.Hour)
	})
}

// TestBreakerReleaseIsNoSuccess holds the middleware to counting on after a call
// that other middleware did not pass on.
func TestBreakerReleaseIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := reactor.Limit(takesAll(0), time.Hour, 1)
		_ = limited(t.Context(), "")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		calls := 0
		h := reactor.Breaker(func(ctx context.Context, v string) error {
			if v == "limited" {
				return limited(ctx, v)
			}
			calls++
			return errBoom
		}, 2, time.Hour)
		_ = h(t.Context(), "")
		_ = h(ended, "limited")
		_ = h(t.Context(), "")
		_ = h(ended, "")
		if calls != 2 {
			t.Errorf("the handler was called %d times, want twice", calls)
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestBreakerCutOff does not take for a failure what a drain has cut off.
func TestBreakerCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut, calls atomic.Int32
		cut.Store(1)
		h := reactor.Breaker(func(ctx context.Context, _ string) error {
			calls.Add(1)
			if cut.Load() == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, 2, time.Hour)
		react := reactor.New("r", func(context.Context) (reactor.Source[string], error) {
			src := newFake(10 * time.Minute)
			src.add("1", "2")
			return src, nil
		}, h, &reactor.Options[string]{Concurrency: 2, DrainTimeout: time.Second})
		r := startFunc(t, react.Run)
		time.Sleep(time.Second)
		r.drain(t)
		cut.Store(0)
		calls.Store(0)
		r = startFunc(t, react.Run)
		time.Sleep(time.Minute)
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls of a reactor that runs again, want 2", n)
		}
		r.drain(t)
	})
}
