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

// A part is what a reactor of a group does.
type part struct {
	name  string
	opens time.Duration
	h     reactor.Handler[string] // nil: it does nothing
	opts  reactor.Options[string]
	src   *fake
}

// groupOf makes a group, and has each reactor's source deliver a value.
func groupOf(j *journal, parts ...*part) *reactor.Group {
	g := &reactor.Group{}
	for _, p := range parts {
		if p.src == nil {
			p.src = newFake(time.Minute)
		}
		if p.h == nil {
			p.h = takesAll(0)
		}
		p.src.add("a")
		p.opts.Observer = j.states()
		g.Reactors = append(g.Reactors, reactor.New(p.name, func(ctx context.Context) (reactor.Source[string], error) {
			select {
			case <-time.After(p.opens):
				return p.src, nil
			case <-ctx.Done():
				return nil, fmt.Errorf("open: %w", ctx.Err())
			}
		}, p.h, &p.opts))
	}
	return g
}

// TestGroup holds a Group to its order: each starts when the one before has
// opened its source, and drains when the one before has ended.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := groupOf(j,
			&part{name: "a", opens: time.Second, h: takesAll(15 * time.Second)},
			&part{name: "b", opens: 2 * time.Second, h: takesAll(20 * time.Second)},
			&part{name: "c"})
		r := startFunc(t, g.Run)
		time.Sleep(10 * time.Second)
		if err := g.Check(t.Context()); err != nil {
			t.Errorf("Check returned %v, want nil", err)
		}
		r.drain(t)
		want := []string{
			"0s a starting", "1s a running", "1s b starting", "3s b running", "3s c starting", "3s c running",
			"10s a draining", "16s a stopped", "16s b draining", "23s b stopped", "23s c draining", "23s c stopped",
		}
		if diff := cmp.Diff(want, j.read()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// TestGroupFails holds a Group to draining the others when one fails, and to the
// errors of all that failed, the first one first.
func TestGroupFails(t *testing.T) {
	late := errors.New("late")
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		a, b, c := &part{name: "a", h: takesAll(10 * time.Second)}, &part{name: "b"}, &part{name: "c"}
		g := groupOf(j, a, b, c)
		r := startFunc(t, g.Run)
		time.Sleep(time.Second)
		c.src.end(errBoom)
		time.Sleep(time.Second)
		b.src.end(late)
		err := r.wait()
		if want := "reactor \"c\": boom\nreactor \"b\": late"; err == nil || err.Error() != want || !errors.Is(err, errBoom) || !errors.Is(err, late) {
			t.Errorf("Run returned %v, want %s", err, want)
		}
		want := []string{
			"0s a starting", "0s a running", "0s b starting", "0s b running", "0s c starting", "0s c running",
			"1s c draining", "1s c failed", "1s a draining", "2s b draining", "2s b failed", "10s a stopped",
		}
		got := j.read()
		if got[7] == "1s a draining" && got[8] == "1s c failed" { // at the same time
			got[7], got[8] = got[8], got[7]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// TestGroupOpen holds a Group to what opens slowly: nothing that comes later
// starts, and its context ends when the group does.
func TestGroupOpen(t *testing.T) {
	tests := []struct {
		name string
		end  func(r *running, a *part)
		err  error
	}{
		{"told to end", func(r *running, _ *part) { r.stop() }, nil},
		{"another fails", func(_ *running, a *part) { a.src.end(errBoom) }, errBoom},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				a := &part{name: "a"}
				g := groupOf(j, a, &part{name: "b", opens: time.Hour}, &part{name: "c"})
				r := startFunc(t, g.Run)
				time.Sleep(time.Minute)
				if err := g.Check(t.Context()); err == nil || err.Error() != "reactor \"b\" is starting\nreactor \"c\" is stopped" {
					t.Errorf("Check returned %v", err)
				}
				test.end(r, a)
				if err := r.wait(); !errors.Is(err, test.err) {
					t.Errorf("Run returned %v, want %v", err, test.err)
				}
				if took := time.Since(j.began); took != time.Minute {
					t.Errorf("Run returned after %v, want 1m", took)
				}
				for i, want := range []reactor.State{reactor.Stopped, reactor.Stopped, reactor.Stopped} {
					if test.err != nil && i == 0 {
						want = reactor.Failed
					}
					if s := g.Reactors[i].Status().State; s != want {
						t.Errorf("%s is %v, want %v", g.Reactors[i].Name(), s, want)
					}
				}
			})
		})
	}
}

// TestGroupOpenFails holds a Group to failing with what cannot be opened, without
// starting what comes later.
func TestGroupOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := groupOf(j, &part{name: "a"}, &part{name: "c"})
		bad := reactor.New("b", func(context.Context) (reactor.Source[string], error) { return nil, errBoom }, takesAll(0), nil)
		g.Reactors = []*reactor.Reactor{g.Reactors[0], bad, g.Reactors[1]}
		if err := g.Run(t.Context()); !errors.Is(err, errBoom) || err.Error() != `reactor "b": boom` {
			t.Errorf("Run returned %v, want what opening b failed with", err)
		}
		if diff := cmp.Diff([]string{"0s a starting", "0s a running", "0s a draining", "0s a stopped"}, j.read()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
		if err := g.Check(t.Context()); err == nil || !strings.Contains(err.Error(), `reactor "b": boom`) {
			t.Errorf("Check returned %v, want what opening b failed with", err)
		}
	})
}

// TestGroupDrainTimeout holds a Group to one deadline for all drains: then every
// handler is cut off, whether or not the turn of its reactor had come.
func TestGroupDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		stuck := func(name string) *part {
			return &part{name: name, h: func(ctx context.Context, _ string) error {
				<-ctx.Done()
				j.add("%s cut off: %v", name, errors.Is(context.Cause(ctx), reactor.ErrDrainTimeout))
				return ctx.Err()
			}}
		}
		parts := []*part{stuck("a"), stuck("b"), stuck("c")}
		g := groupOf(j, parts...)
		g.DrainTimeout = 5 * time.Second
		r := startFunc(t, g.Run)
		time.Sleep(time.Second)
		r.drain(t)
		if took := time.Since(j.began); took != 6*time.Second {
			t.Errorf("Run returned after %v, want 6s", took)
		}
		for _, p := range parts {
			if !strings.Contains(strings.Join(j.read(), "\n"), "6s "+p.name+" cut off: true") {
				t.Errorf("%s was not cut off with ErrDrainTimeout after 5s:\n%v", p.name, j.read())
			}
		}
	})
}

// TestGroupDrainTimeoutStopsAll holds a Group to receiving nothing more when the
// deadline is over, though a handler of the first reactor goes on, and to another
// time for each Run.
func TestGroupDrainTimeoutStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := &part{name: "a", h: takesAll(time.Minute)}
		b := &part{name: "b", h: func(ctx context.Context, _ string) error { return ctx.Err() }}
		g := groupOf(newJournal(), deaf, b)
		g.DrainTimeout = 5 * time.Second
		r := startFunc(t, g.Run)
		time.Sleep(time.Second)
		r.stop()
		before := b.src.add("before")
		time.Sleep(6 * time.Second)
		after := b.src.add("after")
		r.drain(t)
		checkResult(t, reactor.Acked, before...)
		checkResult(t, 0, after...)

		deaf.src, b.src = newFake(time.Minute), newFake(time.Minute)
		again := b.src.add("again")
		r = startFunc(t, g.Run)
		synctest.Wait()
		r.drain(t)
		checkResult(t, reactor.Acked, again...)
	})
}

// TestGroupDrainTimeoutOfOne holds a Group to the DrainTimeout of a reactor's own
// options, too, and to the others' time.
func TestGroupDrainTimeoutOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := groupOf(j,
			&part{name: "a", h: sleepFor(time.Hour), opts: reactor.Options[string]{DrainTimeout: 2 * time.Second}},
			&part{name: "b", h: takesAll(20 * time.Second)})
		r := startFunc(t, g.Run)
		time.Sleep(time.Second)
		r.drain(t)
		want := []string{
			"0s a starting", "0s a running", "0s b starting", "0s b running",
			"1s a draining", "3s a stopped", "3s b draining", "20s b stopped",
		}
		if diff := cmp.Diff(want, j.read()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// TestGroupQuits holds a Group to a panic in one of its reactors, or one that ends
// its goroutine, after the drain of the others, also when another had failed
// before [RUN-6].
func TestGroupQuits(t *testing.T) {
	for name, quit := range map[string]func(){
		"panic":  func() { explode(errBoom) },
		"goexit": runtime.Goexit,
	} {
		for _, second := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, second %v", name, second), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := newJournal()
					a, c := &part{name: "a", h: takesAll(10 * time.Second)}, &part{name: "c"}
					g := groupOf(j, a, &part{name: "b", h: func(context.Context, string) error {
						time.Sleep(2 * time.Second)
						quit()
						return nil
					}}, c)
					r := startFunc(t, g.Run)
					if second {
						time.Sleep(time.Second)
						c.src.end(errors.New("gone"))
					}
					r.wait()
					p, ok := r.panic.(*reactor.PanicError)
					if name == "panic" && (!ok || !errors.Is(p, errBoom) || !strings.Contains(string(p.Stack), "reactor_test.explode")) {
						t.Errorf("Run returned %v, panicked with %v, want a *PanicError with the handler's stack", r.err, r.panic)
					}
					if name == "goexit" && !r.quit {
						t.Errorf("Run returned %v, want its goroutine ended", r.err)
					}
					if took := time.Since(j.began); took != 10*time.Second {
						t.Errorf("it came out after %v, want 10s, when the others had drained", took)
					}
					if s := g.Reactors[1].Status(); s.State != reactor.Failed || s.Err == nil {
						t.Errorf("the status is %+v, want failed", s)
					}
					if err := g.Check(t.Context()); err == nil || !strings.Contains(err.Error(), `reactor "b"`) {
						t.Errorf("Check returned %v, want it to name b", err)
					}
				})
			})
		}
	}
}

// TestGroupFinishes holds a Group to nil when all of its reactors have finished,
// and to going on while one has not.
func TestGroupFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := groupOf(j,
			&part{name: "a", opts: reactor.Options[string]{IdleTimeout: time.Second}},
			&part{name: "b", opts: reactor.Options[string]{IdleTimeout: time.Second}, h: takesAll(time.Minute)})
		r := startFunc(t, g.Run)
		time.Sleep(30 * time.Second)
		if err := g.Check(t.Context()); err != nil {
			t.Errorf("Check returned %v, want nil", err)
		}
		if s := g.Reactors[0].Status().State; s != reactor.Finished {
			t.Errorf("a is %v, want finished", s)
		}
		if err := r.wait(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if took := time.Since(j.began); took != 61*time.Second {
			t.Errorf("Run returned after %v, want 61s", took)
		}
	})
}

// TestGroupStarted holds a Group to telling when all have opened their sources,
// and to not telling when one could not.
func TestGroupStarted(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("fails %v", fails), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				b := &part{name: "b", opens: 2 * time.Second}
				if fails {
					b.opts.Concurrency = -1
				}
				g := groupOf(j, &part{name: "a", opens: time.Second}, b)
				var told []time.Duration
				g.Started = func() { told = append(told, time.Since(j.began)) }
				r := startFunc(t, g.Run)
				time.Sleep(time.Minute)
				if fails {
					if err := r.wait(); err == nil {
						t.Error("Run returned nil, want an error")
					}
				} else {
					r.drain(t)
				}
				if len(told) > 1 || !fails && (len(told) != 1 || told[0] != 3*time.Second) {
					t.Errorf("it was told after %v, want 3s", told)
				}
			})
		})
	}
}

// TestGroupSame holds a Group to failing when a reactor is in it twice.
func TestGroupSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := groupOf(newJournal(), &part{name: "a"})
		g.Reactors = append(g.Reactors, g.Reactors[0])
		if err := g.Run(t.Context()); err == nil || err.Error() != `reactor "a" runs already` {
			t.Errorf("Run returned %v, want that it runs already", err)
		}
	})
}

// TestGroupEnded holds a Group to starting nothing when its context has ended,
// and to running again after that; without reactors it has finished at once.
func TestGroupEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := groupOf(j, &part{name: "a"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ctx); err != nil || j.read() != nil {
			t.Errorf("Run returned %v after %v, want nil after nothing", err, j.read())
		}
		r := startFunc(t, g.Run)
		synctest.Wait()
		if err := g.Check(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Check returned %v, want the end of its context", err)
		}
		r.drain(t)
		if err := (&reactor.Group{}).Run(t.Context()); err != nil {
			t.Errorf("a group of none returned %v", err)
		}
	})
}

// TestGroupCheck holds Check to each state.
func TestGroupCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.add("a")
		g := &reactor.Group{Reactors: []*reactor.Reactor{reactor.New("r", func(context.Context) (reactor.Source[string], error) {
			time.Sleep(time.Second)
			return src, nil
		}, takesAll(10*time.Second), nil)}}
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			if err := g.Check(t.Context()); fmt.Sprint(err) != want {
				t.Errorf("Check returned %v, want %s", err, want)
			}
		}
		check(`reactor "r" is stopped`)
		r := startFunc(t, g.Run)
		check(`reactor "r" is starting`)
		time.Sleep(time.Second)
		check("<nil>")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = g.Reactors[0].Pause(ctx)
		check("<nil>")
		r.stop()
		check(`reactor "r" is draining`)
		if err := r.wait(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		check(`reactor "r" is stopped`)
	})
}
