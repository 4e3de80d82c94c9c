package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// State is where a [Reactor] is in its life.
type State uint8

// The states. A reactor that has not run yet is Stopped.
const (
	Stopped  State = iota // told to end, and has
	Starting              // opening its source
	Running               // receiving
	Paused                // not receiving, until Resume
	Draining              // not receiving any more: handlers finish
	Finished              // ended by itself, with nothing left to do
	Failed                // ended with an error
)

func (s State) String() string {
	names := [...]string{"stopped", "starting", "running", "paused", "draining", "finished", "failed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Status is a [Reactor]'s state.
type Status struct {
	State State
	Since time.Time // zero before the first Run
	Err   error     // why it failed
}

// A Reactor is a Run with a name and a state that can be paused. It runs alone,
// or in a [Group], and is safe for concurrent use.
type Reactor struct {
	name    string
	run     func(ctx context.Context, opened func()) error
	observe func(name string, s Status) // nil: nobody wants to know
	control *control

	mu sync.Mutex
	// Below: under mu.
	status  Status
	paused  bool          // Pause was called last, not Resume
	resumed chan struct{} // is closed by Resume; nil: it is not paused
	untold  []Status      // to observe
	telling bool
}

// New returns a reactor that opens a source and runs h on it.
func New[T any](name string, open func(ctx context.Context) (Source[T], error), h Handler[T], opts *Options[T]) *Reactor {
	return newReactor(name, open, opts, func(ctx context.Context, src Source[T], c *control) error {
		return runOne(ctx, src, h, opts, c)
	})
}

// NewBatch is [New] for [RunBatch].
func NewBatch[T any](name string, open func(ctx context.Context) (Source[T], error), h BatchHandler[T], opts *Options[T]) *Reactor {
	return newReactor(name, open, opts, func(ctx context.Context, src Source[T], c *control) error {
		return runBatch(ctx, src, h, opts, c)
	})
}

func newReactor[T any](name string, open func(ctx context.Context) (Source[T], error), opts *Options[T], run func(context.Context, Source[T], *control) error) *Reactor {
	r := &Reactor{name: name, control: newControl()}
	r.control.onDrain = func() { r.become(Draining, nil) }
	if opts != nil && opts.Observer != nil {
		r.observe = opts.Observer.State
	}
	r.run = func(ctx context.Context, opened func()) error {
		src, err := open(ctx)
		if err != nil {
			return err
		}
		r.become(Running, nil)
		opened()
		return run(ctx, src, r.control)
	}
	return r
}

func (r *Reactor) Name() string { return r.name }

func (r *Reactor) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run opens the source and does what the function [Run] does, where errors name
// the reactor. It may be called again afterwards.
func (r *Reactor) Run(ctx context.Context) error { return r.runOpened(ctx, func() {}) }

// runOpened is Run, and calls opened when the source is open.
func (r *Reactor) runOpened(ctx context.Context, opened func()) error {
	if !r.begin() {
		return fmt.Errorf("reactor %q runs already", r.name)
	}
	err := fmt.Errorf("reactor %q: a function called runtime.Goexit", r.name)
	defer func() {
		if v := recover(); v != nil {
			p, ok := v.(error)
			if !ok {
				p = fmt.Errorf("panic: %v", v)
			}
			r.become(Failed, fmt.Errorf("reactor %q: %w", r.name, p))
			panic(v)
		}
		r.become(Failed, err) // unless it has ended otherwise
	}()
	err = r.run(ctx, opened)
	switch {
	case err == nil && ctx.Err() == nil:
		r.become(Finished, nil)
	case err == nil, ctx.Err() != nil && errors.Is(err, ctx.Err()):
		r.become(Stopped, nil)
		return nil
	default:
		err = fmt.Errorf("reactor %q: %w", r.name, err)
		r.become(Failed, err)
	}
	return err
}

// Pause stops receiving and waits until no handler runs; if ctx ends first, or
// Resume is called, it fails. A reactor that does not run will start paused.
func (r *Reactor) Pause(ctx context.Context) error {
	r.mu.Lock()
	r.paused = true
	if r.resumed == nil {
		r.resumed = make(chan struct{})
	}
	resumed := r.resumed
	r.control.gate.shut(r)
	r.mu.Unlock()
	r.become(Paused, nil)
	run := r.control.running()
	if run == nil {
		return nil
	}
	for _, done := range []<-chan struct{}{run.giveBack(), run.quiet()} {
		select {
		case <-done:
		case <-resumed:
			return fmt.Errorf("reactor %q was resumed while handlers ran", r.name)
		case <-ctx.Done():
			return fmt.Errorf("reactor %q is paused, and handlers run: %w", r.name, ctx.Err())
		}
	}
	return nil
}

// Resume ends a pause. What is being given back comes first [RUN-2].
func (r *Reactor) Resume() {
	r.mu.Lock()
	r.paused = false
	if r.resumed != nil {
		close(r.resumed)
		r.resumed = nil
	}
	r.control.gate.reopen(r)
	r.mu.Unlock()
	r.become(Running, nil)
}

// begin makes a reactor that does not run a starting one.
func (r *Reactor) begin() bool {
	r.mu.Lock()
	switch r.status.State {
	case Stopped, Finished, Failed:
	default:
		r.mu.Unlock()
		return false
	}
	r.set(Starting, nil)
	r.mu.Unlock()
	r.tell()
	return true
}

// become changes the state, where that is a change.
func (r *Reactor) become(to State, err error) {
	r.mu.Lock()
	from := r.status.State
	switch to {
	case Running:
		switch {
		case from == Starting && r.paused:
			to = Paused
		case from != Starting && (from != Paused || r.paused): // paused anew meanwhile
			to = from
		}
	case Paused:
		if from != Running || !r.paused { // resumed meanwhile
			to = from
		}
	case Draining:
		if from != Running && from != Paused {
			to = from
		}
	default: // the end
		if from == Stopped || from == Finished || from == Failed {
			to = from
		}
	}
	if to != from {
		r.set(to, err)
	}
	r.mu.Unlock()
	r.tell()
}

// set changes the state. r.mu is held.
func (r *Reactor) set(to State, err error) {
	r.status = Status{State: to, Since: time.Now(), Err: err}
	if r.observe != nil {
		r.untold = append(r.untold, r.status)
	}
}

// tell tells the observer of changes, in their order and one at a time: whoever
// finds somebody telling leaves it to them.
func (r *Reactor) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.telling {
		return
	}
	r.telling = true
	defer func() { r.telling = false }()
	for len(r.untold) > 0 {
		s := r.untold[0]
		r.untold = r.untold[1:]
		func() {
			r.mu.Unlock()
			defer r.mu.Lock()
			r.observe(r.name, s)
		}()
	}
}
