package reactor_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

type key struct{}

// TestDrain holds Run to a handler that ends in time: it goes on undisturbed,
// is settled, and then the source is closed [RUN-3].
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		first := src.add("first")[0]
		began := time.Now()
		var during error
		r := start(t, src, func(ctx context.Context, _ string) error {
			time.Sleep(10 * time.Second)
			during = ctx.Err()
			return nil
		}, nil)
		time.Sleep(time.Second)
		r.stop()
		second := src.add("second")[0]
		if err := r.wait(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if during != nil {
			t.Errorf("the handler's context ended with %v before DrainTimeout", during)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("Run returned after %v, want 10s, when the handler did", took)
		}
		src.checkClosed(t, began.Add(10*time.Second))
		checkResult(t, reactor.Acked, first)
		checkResult(t, 0, second)
	})
}

// TestDrainTimeout holds Run to what becomes of a handler that takes too long
// [RUN-3].
func TestDrainTimeout(t *testing.T) {
	tests := []struct {
		name string
		err  func(ctx context.Context) error
		want reactor.Result
	}{
		{"an error releases", func(ctx context.Context) error { return ctx.Err() }, reactor.Released},
		{"an error of its own releases", func(context.Context) error { return errors.New("boom") }, reactor.Released},
		{"nil acks", func(context.Context) error { return nil }, reactor.Acked},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				s := src.add("a")[0]
				began := time.Now()
				var cause error
				var cut time.Duration
				r := start(t, src, func(ctx context.Context, _ string) error {
					<-ctx.Done()
					cause, cut = context.Cause(ctx), time.Since(began)
					return test.err(ctx)
				}, &reactor.Options[string]{DrainTimeout: 5 * time.Second})
				synctest.Wait()
				r.drain(t)
				if !errors.Is(cause, reactor.ErrDrainTimeout) || cut != 5*time.Second {
					t.Errorf("the handler was cut off after %v by %v, want 5s, ErrDrainTimeout", cut, cause)
				}
				src.checkClosed(t, began.Add(5*time.Second))
				checkResult(t, test.want, s)
			})
		})
	}
}

// TestDrainWaitsForTheLast holds Run to handlers that do not look at their
// context: it waits, keeps their deliveries alive, and settles them
// [RUN-3, RUN-4].
func TestDrainWaitsForTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		s := src.put(&settler{value: "deaf", info: reactor.Info{Attempt: 1}, onTry: contextEnded})
		s.onBeat = contextEnded
		r := start(t, src, func(context.Context, string) error {
			time.Sleep(time.Hour)
			return errors.New("boom")
		}, &reactor.Options[string]{DrainTimeout: time.Second})
		synctest.Wait()
		began := time.Now()
		r.drain(t)
		src.checkClosed(t, began.Add(time.Hour))
		checkResult(t, reactor.Released, s)
	})
}

// contextEnded is the settle or extend of a provider that waits for a
// confirmation, and so needs a context that has not ended.
func contextEnded(ctx context.Context, _ int) error { return ctx.Err() }

// TestDrainStartsNothing holds Run to releasing what it has received and not
// started when ctx ends, without calling the handler [RUN-3].
func TestDrainStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.eager = true
		added := src.add("a", "b", "c")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := reactor.Run(ctx, src, func(_ context.Context, v string) error {
			t.Errorf("the handler was called with %s", v)
			return nil
		}, &reactor.Options[string]{Concurrency: 2})
		if err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		src.checkClosed(t, time.Now())
		for _, s := range added {
			if got := s.outcome().Result; got != reactor.Released && got != 0 {
				t.Errorf("%s was settled as %v, want released if it was taken", s.value, got)
			}
		}
	})
}

// TestDrainContext holds a handler's context to carrying the values of Run's,
// and not its end [RUN-3].
func TestDrainContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		s := src.add("a")[0]
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Second)
		defer cancel()
		err := reactor.Run(ctx, src, func(ctx context.Context, _ string) error {
			if _, ok := ctx.Deadline(); ok {
				t.Error("the handler's context has the deadline of Run's")
			}
			if got := ctx.Value(key{}); got != "value" {
				t.Errorf("the handler's context has %v, want the value of Run's", got)
			}
			time.Sleep(2 * time.Second)
			return ctx.Err()
		}, nil)
		if err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		checkResult(t, reactor.Acked, s)
	})
}

// TestDrainForEver holds Run to the longest DrainTimeout there is: it still
// settles, with a context that has not ended.
func TestDrainForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(0)
		s := src.put(&settler{value: "a", onTry: contextEnded})
		r := start(t, src, sleepFor(1000*time.Hour), &reactor.Options[string]{DrainTimeout: math.MaxInt64})
		synctest.Wait()
		r.drain(t)
		checkResult(t, reactor.Acked, s)
	})
}

// TestHandlerContextEnds holds a handler's context to its end when the handler
// has returned, although its delivery is not settled yet.
func TestHandlerContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		var handling context.Context
		s := src.put(&settler{value: "a", onTry: func(context.Context, int) error {
			if handling.Err() == nil {
				t.Error("the handler's context lasts while its delivery is settled")
			}
			return nil
		}})
		r := start(t, src, func(ctx context.Context, _ string) error {
			handling = ctx
			return ctx.Err()
		}, nil)
		synctest.Wait()
		r.drain(t)
		checkResult(t, reactor.Acked, s)
	})
}

// TestDrainSettleHangs holds Run to an end although its broker is gone: a
// settle that waits for a confirmation is given up on after a grace [RUN-3].
func TestDrainSettleHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(0)
		src.put(&settler{value: "a", onTry: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		r := start(t, src, func(context.Context, string) error { return nil },
			&reactor.Options[string]{DrainTimeout: 10 * time.Second})
		synctest.Wait()
		began := time.Now()
		r.drain(t)
		if took := time.Since(began); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("Run drained for %v, want DrainTimeout and a short grace", took)
		}
	})
}
