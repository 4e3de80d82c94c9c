package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// states writes down the states of reactors.
func (j *journal) states() *reactor.Observer[string] {
	return &reactor.Observer[string]{State: func(name string, s reactor.Status) { j.add("%s %v", name, s.State) }}
}

// TestReactorStates holds a Reactor to its states: each is told once, in order.
func TestReactorStates(t *testing.T) {
	tests := []struct {
		name string
		opts reactor.Options[string]
		h    reactor.Handler[string]
		do   func(r *running, src *fake)
		want []string
		err  error
	}{
		{
			name: "told to end", h: takesAll(10 * time.Second),
			do:   func(r *running, _ *fake) { r.stop() },
			want: []string{"2s r running", "5s r draining", "12s r stopped"},
		},
		{
			name: "nothing to do", opts: reactor.Options[string]{IdleTimeout: time.Second}, h: takesAll(10 * time.Second),
			want: []string{"2s r running", "13s r draining", "13s r finished"},
		},
		{
			name: "the source ends", h: takesAll(10 * time.Second),
			do:   func(_ *running, src *fake) { src.end(errBoom) },
			want: []string{"2s r running", "12s r draining", "12s r failed"},
			err:  errBoom,
		},
		{
			name: "options out of range", opts: reactor.Options[string]{Concurrency: -1}, h: takesAll(0),
			want: []string{"2s r running", "2s r failed"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				src.add("a")
				j := newJournal()
				test.opts.Observer = j.states()
				react := reactor.New("r", func(context.Context) (reactor.Source[string], error) {
					time.Sleep(2 * time.Second)
					return src, nil
				}, test.h, &test.opts)
				if s := react.Status(); s.State != reactor.Stopped || !s.Since.IsZero() {
					t.Errorf("before Run the status is %+v, want stopped", s)
				}
				r := startFunc(t, react.Run)
				time.Sleep(5 * time.Second)
				if test.do != nil {
					test.do(r, src)
				}
				err := r.wait()
				want := append([]string{"0s r starting"}, test.want...)
				if diff := cmp.Diff(want, j.read()); diff != "" {
					t.Errorf("states (-want +got):\n%s", diff)
				}
				s := react.Status()
				if failed := s.State == reactor.Failed; failed != (err != nil) || test.err != nil && !errors.Is(err, test.err) || s.Err != err {
					t.Errorf("Run returned %v in %+v, want %v", err, s, test.err)
				}
				if err != nil && !strings.HasPrefix(err.Error(), `reactor "r": `) {
					t.Errorf("the error is %v, want it to name the reactor", err)
				}
			})
		})
	}
}

func takesAll(d time.Duration) reactor.Handler[string] {
	return func(context.Context, string) error {
		time.Sleep(d)
		return nil
	}
}

// TestReactorQuits holds a Reactor to failing, with an error, when its handler or
// what opens its source panics or ends its goroutine; and Run to do likewise.
func TestReactorQuits(t *testing.T) {
	for name, quit := range map[string]func(){
		"panic with an error": func() { explode(errBoom) },
		"panic with a string": func() { explode("boom") },
		"goexit":              runtime.Goexit,
	} {
		for _, opening := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, opening %v", name, opening), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					src := newFake(time.Minute)
					src.add("a")
					react := reactor.New("r", func(context.Context) (reactor.Source[string], error) {
						if opening {
							quit()
						}
						return src, nil
					}, func(context.Context, string) error {
						quit()
						return nil
					}, nil)
					r := startFunc(t, react.Run)
					r.wait()
					if (name == "goexit") != r.quit || (name != "goexit") != (r.panic != nil) {
						t.Errorf("Run returned %v, panicked with %v", r.err, r.panic)
					}
					if s := react.Status(); s.State != reactor.Failed || s.Err == nil || !strings.HasPrefix(s.Err.Error(), `reactor "r": `) {
						t.Errorf("the status is %+v, want failed with an error that names the reactor", s)
					}
				})
			})
		}
	}
}

// TestReactorAgain holds a Reactor to running again when it has ended, and to
// refusing that while it runs.
func TestReactorAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		fail := errBoom
		react := reactor.New("r", func(context.Context) (reactor.Source[string], error) {
			return newFake(time.Minute), fail
		}, takesAll(0), &reactor.Options[string]{Observer: j.states()})
		if err := react.Run(t.Context()); !errors.Is(err, errBoom) {
			t.Errorf("Run returned %v, want what opening failed with", err)
		}
		fail = nil
		for range 2 {
			r := startFunc(t, react.Run)
			synctest.Wait()
			if err := react.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"r" runs already`) {
				t.Errorf("Run returned %v while another runs", err)
			}
			r.drain(t)
		}
		want := []string{"starting", "failed", "starting", "running", "draining", "stopped", "starting", "running", "draining", "stopped"}
		for i := range want {
			want[i] = "0s r " + want[i]
		}
		if diff := cmp.Diff(want, j.read()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

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

// TestStateObserverCallsBack holds a Reactor to an observer that uses it.
func TestStateObserverCallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var react *reactor.Reactor
		var got []string
		react = reactor.New("r", opens(newFake(time.Minute)), takesAll(0), &reactor.Options[string]{
			Observer: &reactor.Observer[string]{State: func(_ string, s reactor.Status) {
				switch s.State {
				case reactor.Starting:
					react.Pause(t.Context())
				case reactor.Paused:
					react.Resume()
				}
				got = append(got, s.State.String()) // one change after another
			}},
		})
		r := startFunc(t, react.Run)
		synctest.Wait()
		r.drain(t)
		if diff := cmp.Diff([]string{"starting", "paused", "running", "draining", "stopped"}, got); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// TestIdle holds Run to ending when it has had nothing to do for IdleTimeout, and
// to what counts as something.
func TestIdle(t *testing.T) {
	tests := []struct {
		name string
		set  func(b *broker)
		h    map[string]fate
		want []string
		took time.Duration
	}{
		{"nothing", func(*broker) {}, nil, nil, 5 * time.Second},
		{"a handler", func(b *broker) { b.publish("a") }, map[string]fate{"a": takes(12 * time.Second)},
			[]string{"0s a #1"}, 17 * time.Second},
		{"a value that comes", func(b *broker) { time.AfterFunc(4*time.Second, func() { b.publish("a") }) }, nil,
			[]string{"4s a #1"}, 9 * time.Second},
		{"a retry that is due", func(b *broker) { b.publish("a") }, map[string]fate{"a": failsOnce(time.Minute)},
			[]string{"0s a #1", "1m0s a #2"}, 65 * time.Second},
		{"a retry that is due, with others meanwhile",
			func(b *broker) {
				b.publish("a")
				time.AfterFunc(4*time.Second, func() { b.publish("b") })
				time.AfterFunc(8*time.Second, func() { b.publish("c") })
			},
			map[string]fate{"a": failsOnce(time.Minute), "b": takes(3 * time.Second), "c": takes(3 * time.Second)},
			[]string{"0s a #1", "4s b #1", "8s c #1", "1m0s a #2"}, 65 * time.Second},
		{"a value that is dead", func(b *broker) { b.publish("a"); b.maxAttempts = 1 }, map[string]fate{"a": failsOnce(time.Minute)},
			[]string{"0s a #1"}, 5 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(10 * time.Second)
				test.set(b)
				j := newJournal()
				r := start(t, b, byFate(j, test.h), &reactor.Options[string]{IdleTimeout: 5 * time.Second, Concurrency: 2})
				if err := r.wait(); err != nil {
					t.Errorf("Run returned %v, want nil", err)
				}
				if diff := cmp.Diff(test.want, j.read()); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
				if took := time.Since(j.began); took != test.took {
					t.Errorf("Run ended after %v, want %v", took, test.took)
				}
			})
		})
	}
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
