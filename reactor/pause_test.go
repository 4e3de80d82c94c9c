package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// TestPause holds Pause to waiting for the handlers that run, and to giving back
// what waits for its key; and Resume to going on.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10*time.Second, "a/1", "a/2", "a/3")
		j, states := newJournal(), newJournal()
		react := reactor.New("r", opens(b), byFate(j, map[string]fate{"a/1": takes(20 * time.Second)}),
			&reactor.Options[string]{Concurrency: 3, Key: keyOf, Observer: states.states()})
		r := startFunc(t, react.Run)
		time.Sleep(time.Second)
		if err := react.Pause(t.Context()); err != nil {
			t.Errorf("Pause returned %v", err)
		}
		if diff := cmp.Diff([]string{"a/2 released", "a/3 released", "a/1 acked"}, b.history()); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
		if n := b.received(); n != 0 {
			t.Errorf("%d deliveries are out during a pause", n)
		}
		time.Sleep(time.Hour)
		if err := react.Pause(t.Context()); err != nil {
			t.Errorf("a second Pause returned %v", err)
		}
		react.Resume()
		react.Resume()
		time.Sleep(time.Minute)
		r.drain(t)
		if diff := cmp.Diff([]string{"0s a/1 #1", "1h0m20s a/2 #1", "1h0m20s a/3 #1"}, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
		want := []string{"0s r starting", "0s r running", "1s r paused", "1h0m20s r running", "1h1m20s r draining", "1h1m20s r stopped"}
		if diff := cmp.Diff(want, states.read()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// TestPauseLate holds a Reactor to giving back what it receives as it is paused,
// and to calling no handler after Pause has returned.
func TestPauseLate(t *testing.T) {
	for _, key := range []func(string) string{nil, keyOf} {
		t.Run(fmt.Sprintf("keyed %v", key != nil), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(time.Minute)
				b.late = []string{"a/1"}
				j := newJournal()
				react := reactor.New("r", opens(b), byFate(j, nil), &reactor.Options[string]{Key: key})
				r := startFunc(t, react.Run)
				synctest.Wait()
				if err := react.Pause(t.Context()); err != nil {
					t.Errorf("Pause returned %v", err)
				}
				time.Sleep(time.Minute)
				if diff := cmp.Diff([]string{"a/1 released"}, b.history()); diff != "" {
					t.Errorf("settled (-want +got):\n%s", diff)
				}
				if got := j.read(); got != nil {
					t.Errorf("handled during a pause: %v", got)
				}
				react.Resume()
				synctest.Wait()
				r.drain(t)
				if diff := cmp.Diff([]string{"1m0s a/1 #1"}, j.read()); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestPauseEnds holds Pause to its context; the reactor is paused then, too.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.add("a")
		react := reactor.New("r", opens(src), takesAll(time.Hour), nil)
		r := startFunc(t, react.Run)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := react.Pause(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"r"`) {
			t.Errorf("Pause returned %v, want the end of its context", err)
		}
		late := src.add("b")
		time.Sleep(2 * time.Hour)
		checkResult(t, 0, late...)
		if s := react.Status().State; s != reactor.Paused {
			t.Errorf("the reactor is %v, want paused", s)
		}
		r.drain(t)
	})
}

// TestPauseResumed holds a Pause to ending when it is undone, though handlers run
// for as long as the reactor does.
func TestPauseResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.add("a")
		react := reactor.New("r", opens(src), takesAll(time.Hour), nil)
		r := startFunc(t, react.Run)
		synctest.Wait()
		paused := make(chan error, 2)
		for range cap(paused) {
			go func() { paused <- react.Pause(t.Context()) }()
		}
		synctest.Wait()
		react.Resume()
		synctest.Wait()
		for range cap(paused) {
			select {
			case err := <-paused:
				if err == nil || !strings.Contains(err.Error(), `"r" was resumed`) {
					t.Errorf("Pause returned %v, though it was resumed", err)
				}
			default:
				t.Error("a Pause waits, though it was resumed")
			}
		}
		if s := react.Status().State; s != reactor.Running {
			t.Errorf("the reactor is %v, want running", s)
		}
		r.drain(t)
	})
}

// TestPauseDuringOutage holds Pause to its context although what waits for its
// key cannot be given back.
func TestPauseDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(0, "a/1", "a/2")
		react := reactor.New("r", opens(b), takesAll(time.Second),
			&reactor.Options[string]{Concurrency: 2, Key: keyOf, DrainTimeout: 10 * time.Second})
		r := startFunc(t, react.Run)
		synctest.Wait()
		b.hang()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if err := react.Pause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Pause returned %v, want the end of its context", err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("Pause took %v, want 5s", took)
		}
		r.drain(t)
	})
}

// TestPauseBeforeRun holds a Reactor that was paused before Run, or while its
// source opens, to starting paused.
func TestPauseBeforeRun(t *testing.T) {
	for _, opening := range []bool{false, true} {
		t.Run(fmt.Sprintf("opening %v", opening), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				added := src.add("a")
				j := newJournal()
				react := reactor.New("r", func(context.Context) (reactor.Source[string], error) {
					time.Sleep(time.Second)
					return src, nil
				}, takesAll(0), &reactor.Options[string]{Observer: j.states()})
				pause := func() {
					if err := react.Pause(t.Context()); err != nil {
						t.Errorf("Pause returned %v", err)
					}
				}
				if !opening {
					pause()
				}
				r := startFunc(t, react.Run)
				synctest.Wait()
				if opening {
					pause()
				}
				time.Sleep(time.Minute)
				checkResult(t, 0, added...)
				react.Resume()
				synctest.Wait()
				checkResult(t, reactor.Acked, added...)
				r.drain(t)
				want := []string{"0s r starting", "1s r paused", "1m0s r running", "1m0s r draining", "1m0s r stopped"}
				if diff := cmp.Diff(want, j.read()); diff != "" {
					t.Errorf("states (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestPauseWhileDraining holds Pause to waiting for a drain's handlers, and to
// leaving the state alone.
func TestPauseWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.add("a")
		j := newJournal()
		react := reactor.New("r", opens(src), takesAll(10*time.Second), &reactor.Options[string]{Observer: j.states()})
		r := startFunc(t, react.Run)
		synctest.Wait()
		r.stop()
		synctest.Wait()
		if err := react.Pause(t.Context()); err != nil {
			t.Errorf("Pause returned %v", err)
		}
		if took := time.Since(j.began); took != 10*time.Second {
			t.Errorf("Pause returned after %v, want 10s, when the handler did", took)
		}
		react.Resume()
		r.drain(t)
		want := []string{"0s r starting", "0s r running", "0s r draining", "10s r stopped"}
		if diff := cmp.Diff(want, j.read()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// TestIdlePaused holds a paused Reactor to not ending by IdleTimeout.
func TestIdlePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		react := reactor.New("r", opens(newFake(time.Minute)), takesAll(0), &reactor.Options[string]{IdleTimeout: 10 * time.Second})
		r := startFunc(t, react.Run)
		time.Sleep(9 * time.Second)
		if err := react.Pause(t.Context()); err != nil {
			t.Errorf("Pause returned %v", err)
		}
		time.Sleep(time.Hour)
		if s := react.Status().State; s != reactor.Paused {
			t.Errorf("the reactor is %v, want paused", s)
		}
		began := time.Now()
		react.Resume()
		if err := r.wait(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Run ended %v after Resume, want 10s at most", took)
		}
		if s := react.Status().State; s != reactor.Finished {
			t.Errorf("the reactor is %v, want finished", s)
		}
	})
}
