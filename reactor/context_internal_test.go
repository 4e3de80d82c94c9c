package reactor

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

type parentKey struct{}

// A lazy and a real context that have the same parent, and the same done to them.
type pair struct {
	lazy   lazyContext
	real   context.Context
	cancel context.CancelCauseFunc
	parent context.CancelCauseFunc
}

func newPair(t *testing.T) *pair {
	p := &pair{}
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), parentKey{}, "value"))
	t.Cleanup(func() { cancel(nil) })
	p.parent = cancel
	p.lazy.parent = parent
	p.real, p.cancel = context.WithCancelCause(parent)
	return p
}

func (p *pair) end(cause error) {
	p.lazy.end(cause)
	p.cancel(cause)
}

// TestLazyContext holds a lazyContext to what a real one does, in whatever order it
// is looked at and ended.
func TestLazyContext(t *testing.T) {
	boom := errors.New("boom")
	steps := map[string]func(*pair){
		"look":       func(p *pair) { p.lazy.Done() },
		"end":        func(p *pair) { p.end(nil) },
		"lose":       func(p *pair) { p.end(ErrLost) },
		"cut off":    func(p *pair) { p.parent(ErrDrainTimeout) },
		"end parent": func(p *pair) { p.parent(nil) },
		"other":      func(p *pair) { p.end(boom) },
	}
	for first, do1 := range steps {
		for second, do2 := range steps {
			for third, do3 := range steps {
				if first == "end" && (second == "cut off" || third == "cut off") {
					continue // nobody looks at it any more
				}
				t.Run(first+", "+second+", "+third, func(t *testing.T) {
					p := newPair(t)
					for _, do := range []func(*pair){do1, do2, do3} {
						do(p)
						if got, want := p.lazy.Err(), p.real.Err(); got != want {
							t.Errorf("Err() = %v, want %v", got, want)
						}
						lost := context.Cause(p.real) == ErrLost
						if got := p.lazy.endedBy(ErrLost); got != lost {
							t.Errorf("ended by ErrLost: %v, want %v", got, lost)
						}
					}
					if got, want := context.Cause(&p.lazy), context.Cause(p.real); got != want {
						t.Errorf("the cause is %v, want %v", got, want)
					}
					select {
					case <-p.lazy.Done():
						if p.real.Err() == nil {
							t.Error("it is done, want it to last")
						}
					default:
						if p.real.Err() != nil {
							t.Error("it lasts, want it done")
						}
					}
				})
			}
		}
	}
}

// TestLazyContextChildren holds a lazyContext to ending its children, with its
// cause, without a goroutine of their own.
func TestLazyContextChildren(t *testing.T) {
	for _, early := range []bool{true, false} {
		p := newPair(t)
		if !early {
			p.end(ErrLost)
		}
		child, cancel := context.WithTimeout(context.WithValue(&p.lazy, parentKey{}, "other"), time.Hour)
		defer cancel()
		called := make(chan struct{})
		context.AfterFunc(&p.lazy, func() { close(called) })
		if early {
			if child.Err() != nil || context.Cause(child) != nil {
				t.Errorf("the child ended with %v before its parent", context.Cause(child))
			}
			p.end(ErrLost)
		}
		// At once: a child that a goroutine watches would take its time.
		if context.Cause(child) != ErrLost || child.Err() != context.Canceled {
			t.Errorf("the child ended with %v of %v, want ErrLost", child.Err(), context.Cause(child))
		}
		<-called
		if outlives := context.WithoutCancel(&p.lazy); outlives.Err() != nil || outlives.Value(parentKey{}) != "value" {
			t.Error("WithoutCancel must not end, and keep values")
		}
	}
}

// TestLazyContextValues holds a lazyContext to its own Info and control, and to the
// other values and the deadline of its parent.
func TestLazyContextValues(t *testing.T) {
	deadline := time.Now().Add(time.Hour)
	parent, cancel := context.WithDeadline(context.WithValue(t.Context(), parentKey{}, "value"), deadline)
	defer cancel()
	outer := WithInfo(parent, Info{Attempt: 7})
	own, c := &Info{Attempt: 2}, newControl()
	for name, test := range map[string]struct {
		ctx     *lazyContext
		attempt int
		control *control
	}{
		"its own":   {&lazyContext{parent: outer, info: own, run: c}, 2, c},
		"inherited": {&lazyContext{parent: &lazyContext{parent: parent, info: own, run: c}}, 2, c},
		"none":      {&lazyContext{parent: parent}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // before its end, and after
				if got := InfoFrom(test.ctx).Attempt; got != test.attempt {
					t.Errorf("the attempt is %d, want %d", got, test.attempt)
				}
				if got := controlFrom(test.ctx); got != test.control {
					t.Errorf("the control is %p, want %p", got, test.control)
				}
				if got := test.ctx.Value(parentKey{}); got != "value" {
					t.Errorf("the parent's value is %v", got)
				}
				if got, ok := test.ctx.Deadline(); !ok || !got.Equal(deadline) {
					t.Errorf("the deadline is %v", got)
				}
				if got := InfoFrom(WithInfo(test.ctx, Info{Attempt: 9})).Attempt; got != 9 {
					t.Errorf("the attempt of a child is %d, want 9", got)
				}
				test.ctx.end(nil)
			}
		})
	}
}

// TestLazyContextRace looks at a lazyContext while it ends: nobody misses that, and
// all see one cause.
func TestLazyContextRace(t *testing.T) {
	for i := range 2000 {
		p := newPair(t)
		var wg sync.WaitGroup
		causes := make([]error, 3)
		for n := range causes {
			wg.Go(func() {
				<-p.lazy.Done()
				causes[n] = context.Cause(&p.lazy)
				if p.lazy.Err() == nil {
					t.Error("Err() is nil after Done")
				}
			})
		}
		wg.Go(func() { p.lazy.endedBy(ErrLost) })
		wg.Go(func() { p.lazy.end(ErrLost) })
		if i%2 == 0 {
			wg.Go(func() { p.lazy.end(nil) })
		}
		wg.Wait()
		for _, cause := range causes {
			if cause != causes[0] || cause != ErrLost && (i%2 != 0 || cause != context.Canceled) {
				t.Fatalf("the causes are %v", causes)
			}
		}
	}
}

// TestLazyContextCostsNothing holds a context that nobody looks at to no
// allocation.
func TestLazyContextCostsNothing(t *testing.T) {
	parent := t.Context()
	var c lazyContext
	if n := testing.AllocsPerRun(100, func() {
		c.state.Store(unseen)
		c.parent = parent
		_ = c.Err()
		c.end(nil)
		c.end(ErrLost)
		_ = c.endedBy(ErrLost)
	}); n != 0 {
		t.Errorf("it took %v allocations, want none", n)
	}
}
