package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// TestKeyDrain holds Run to releasing what waits for its key, at once and in
// order, when it is told to stop [RUN-3].
func TestKeyDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "a/1", "b/1", "a/2", "b/2", "a/3", "c/1")
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/1": takes(10 * time.Second), "b/1": failsOnce(time.Minute)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 4})
		synctest.Wait()
		r.stop()
		synctest.Wait()
		want := []string{"b/1 retried", "c/1 acked", "a/2 released", "b/2 released", "a/3 released"}
		got := b.history()
		slices.Sort(got[:2])
		// A Receive that is not told yet may get the first of them once more.
		if len(got) > 5 && slices.Equal(got[5:], want[2:3]) {
			got = got[:5]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
		began := time.Now()
		r.drain(t)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("Run returned after %v, want 10s, when the handler did", took)
		}
	})
}

// TestKeyDrainLate holds Run to releasing what it receives as it is told to stop,
// also behind a handler of its key [RUN-3].
func TestKeyDrainLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "a/1")
		b.late = []string{"a/2", "a/3"}
		r := start(t, b, func(context.Context, string) error {
			time.Sleep(10 * time.Second)
			return nil
		}, &reactor.Options[string]{Key: keyOf, Concurrency: 2})
		synctest.Wait()
		r.stop()
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a/2 released"}, b.history()); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
		r.drain(t)
		if b.left > 0 {
			t.Errorf("%d deliveries were left to Close", b.left)
		}
	})
}

// TestKeyDrainDuringOutage holds Run to an end although what waits for its key
// cannot be released: closing the source gives it back [RUN-3, CLS-1].
func TestKeyDrainDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(0)
		for i := range 1000 {
			b.publish(fmt.Sprintf("a/%d", i))
		}
		r := start(t, b, func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		}, &reactor.Options[string]{Key: keyOf, Concurrency: 2, DrainTimeout: 10 * time.Second})
		synctest.Wait()
		b.hang()
		began := time.Now()
		r.drain(t)
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("Run drained for %v, want DrainTimeout and a short grace", took)
		}
	})
}

// TestKeyPanics holds Run to a Key that panics: as for a handler [RUN-6].
func TestKeyPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "a/1", "a/2")
		r := start(t, b, func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		}, &reactor.Options[string]{Concurrency: 2, Key: func(v string) string {
			if v == "bad" {
				explode(errBoom)
			}
			return keyOf(v)
		}})
		synctest.Wait()
		b.publish("bad", "a/3")
		r.wait()
		p, ok := r.panic.(*reactor.PanicError)
		if !ok || !errors.Is(p, errBoom) {
			t.Fatalf("Run panicked with %v, want a *PanicError of boom", r.panic)
		}
		want := []string{"a/1 acked", "a/2 released", "bad retried"}
		got := b.history()
		slices.Sort(got)
		got = slices.Compact(got) // a Receive that was not told yet may get one once more
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
	})
}

// TestKeyExits holds Run to a Key that ends its goroutine: as for a handler.
func TestKeyExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "bad", "a/1")
		r := start(t, b, func(context.Context, string) error { return nil },
			&reactor.Options[string]{Key: func(v string) string {
				if v == "bad" {
					runtime.Goexit()
				}
				return v
			}})
		synctest.Wait()
		if !r.quit {
			t.Error("Run goes on without receiving")
			r.stop()
		}
		r.wait()
		if diff := cmp.Diff([]string{"bad retried"}, b.history()); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
	})
}

// TestKeyIdle holds Run to no end by IdleTimeout while a key waits for a value.
func TestKeyIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10*time.Second, "a/1", "a/2")
		b.letters[0].gone = true
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/1": failsOnce(3 * time.Second)}),
			&reactor.Options[string]{Key: keyOf, IdleTimeout: time.Second})
		if err := r.wait(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if diff := cmp.Diff([]string{"0s a/1 #1", "13s a/2 #1"}, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}
