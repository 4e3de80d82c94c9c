package reactor_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// TestKeyConcurrency holds Run to Concurrency with keys, and to a worker for
// each key as far as there are workers [RUN-2].
func TestKeyConcurrency(t *testing.T) {
	const keys = 10_000
	for _, limit := range []int{1, 7, keys} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(time.Minute)
				for n := range 2 {
					for i := range keys {
						b.publish(fmt.Sprintf("%d/%d", i, n))
					}
				}
				var g gauge
				before := goroutines()
				r := start(t, b, func(context.Context, string) error {
					g.enter()
					defer g.leave()
					time.Sleep(time.Second)
					return nil
				}, &reactor.Options[string]{Key: keyOf, Concurrency: limit})
				synctest.Wait()
				if now, _ := g.read(); now != limit {
					t.Errorf("%d handlers run, want %d", now, limit)
				}
				time.Sleep(time.Duration(2*keys/limit+1) * time.Second)
				synctest.Wait()
				b.checkAll(t, "acked")
				if now, most := g.read(); now != 0 || most != limit {
					t.Errorf("%d handlers run at the end, %d at most; want 0 and %d", now, most, limit)
				}
				if n := goroutines() - before; n > 20 {
					t.Errorf("%d goroutines when there is nothing to do", n)
				}
				r.drain(t)
			})
		})
	}
}

// goroutines returns how many there are. It stops the world for it, as
// runtime.NumGoroutine does not: that counts some that have ended, too, while
// what is left of them goes from one list to another, up to 32 at a time.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("\ngoroutine ")) + 1
}

// TestKeyBackingOff holds Run to no goroutine for a key that waits for a value
// to come again, and to going on with the other keys.
func TestKeyBackingOff(t *testing.T) {
	const keys = 5000
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10 * time.Second)
		for i := range keys {
			b.publish(fmt.Sprintf("%d/1", i), fmt.Sprintf("%d/2", i))
		}
		var failed gauge
		before := goroutines()
		r := start(t, b, func(ctx context.Context, v string) error {
			if info := reactor.InfoFrom(ctx); info.Attempt == 1 && info.Sequence%2 == 1 {
				failed.enter()
				return reactor.RetryAfter(errBoom, time.Minute)
			}
			return nil
		}, &reactor.Options[string]{Key: keyOf, Concurrency: 4})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n, _ := failed.read(); n != keys {
			t.Errorf("%d keys back off, want %d", n, keys)
		}
		if n := goroutines() - before; n > 20 {
			t.Errorf("%d goroutines while %d keys back off", n, keys)
		}
		if n := b.received(); n != keys {
			t.Errorf("%d values wait for their key, want %d", n, keys)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		b.checkAll(t, "acked")
		r.drain(t)
	})
}

// TestKeyHeld holds Run to a bound of what waits for its key, and to receiving
// again as soon as there is room.
func TestKeyHeld(t *testing.T) {
	const most = 1 << 14
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Hour)
		for i := range most + 100 {
			b.publish(fmt.Sprintf("a/%d", i))
		}
		b.publish("b/1")
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/0": takes(time.Second), "a/200": takes(time.Minute)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 3})
		synctest.Wait()
		if n := b.received(); n < most || n > most+3 {
			t.Errorf("%d values were received, want %d and a few", n, most)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !slices.Contains(j.read(), "1s b/1 #1") {
			t.Error("another key was not handled when there was room")
		}
		time.Sleep(2 * time.Minute)
		r.drain(t)
		b.checkAll(t, "acked")
	})
}

// TestKeyHeldByOneThatFailed holds Run to receiving a value that comes again
// though all that may wait for it does.
func TestKeyHeldByOneThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute)
		for i := range 1<<14 + 100 {
			b.publish(fmt.Sprintf("a/%d", i))
		}
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/0": failsOnce(time.Second)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 3})
		time.Sleep(time.Hour)
		r.drain(t)
		if diff := cmp.Diff([]string{"0s a/0 #1", "1s a/0 #2", "1s a/1 #1"}, j.read()[:3]); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
		b.checkAll(t, "acked")
	})
}
