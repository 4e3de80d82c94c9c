package reactor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// TestGroupStartedPanics has the reactors end when Started does not return.
func TestGroupStartedPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		react := reactor.New("r", opens(newFake(time.Hour)), takesAll(0), nil)
		r := startFunc(t, (&reactor.Group{Reactors: []*reactor.Reactor{react}, Started: func() { panic("boom") }}).Run)
		if r.wait(); r.panic != "boom" {
			t.Errorf("Run panicked with %v, want boom", r.panic)
		}
		if s := react.Status().State; s != reactor.Stopped {
			t.Errorf("the reactor is %v, want stopped", s)
		}
	})
}

// TestGroupDrainAway holds a Group's DrainTimeout to bounding the settles, too, of
// a broker that is away.
func TestGroupDrainAway(t *testing.T) {
	drains := func(t *testing.T, src reactor.Source[string], h reactor.Handler[string], opts *reactor.Options[string], away func()) {
		t.Helper()
		g := &reactor.Group{Reactors: []*reactor.Reactor{reactor.New("r", opens(src), h, opts)}, DrainTimeout: time.Second}
		r := startFunc(t, g.Run)
		time.Sleep(time.Second)
		away()
		began := time.Now()
		r.drain(t)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("drained for %v, want 1s and a grace of 5s at most", took)
		}
	}
	t.Run("an ack", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(time.Hour)
			src.put(&settler{value: "a", onTry: func(context.Context, int) error { return errors.New("away") }})
			drains(t, src, takesAll(0), nil, func() {})
		})
	})
	t.Run("what waits for its key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(0, "a/1", "a/2")
			h := func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
			drains(t, b, h, &reactor.Options[string]{Concurrency: 2, Key: keyOf}, b.hang)
		})
	})
}
