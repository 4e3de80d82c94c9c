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
