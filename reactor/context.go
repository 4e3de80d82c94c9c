package reactor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A lazyContext is a context that can be cancelled, and that costs nothing
// until somebody looks at it: most handlers have ended before anything would
// have cancelled theirs, and most settles do not wait. Then it makes a real one,
// which is what children and [context.Cause] come to know.
type lazyContext struct {
	parent context.Context
	info   *Info    // for InfoFrom; nil: the parent's
	run    *control // for middleware; nil: the parent's

	state atomic.Uint32

	mu sync.Mutex
	// Below: under mu.
	real *realContext // nil: nobody has looked, and it has no cause of its own
}

type realContext struct {
	context.Context // nil: nobody has looked
	cancel          context.CancelCauseFunc
	cause           error // of a context that ended before anybody looked
}

// The states of a lazyContext, which are final but for the first. In the second
// real says more.
const (
	unseen uint32 = iota
	seen
	endedUnseen
)

type (
	infoKey    struct{}
	controlKey struct{}
)

// end cancels the context. The first cause is kept; nil is context.Canceled.
func (c *lazyContext) end(cause error) {
	if cause == nil && (c.state.CompareAndSwap(unseen, endedUnseen) || c.state.Load() == endedUnseen) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.CompareAndSwap(unseen, endedUnseen) {
		if c.parent.Err() != nil {
			cause = context.Cause(c.parent)
		}
		c.real = &realContext{cause: cause}
	} else if c.looked() {
		c.real.cancel(cause)
	}
}

// looked reports whether there is a real context. c.mu is held.
func (c *lazyContext) looked() bool { return c.real != nil && c.real.Context != nil }

// endedBy reports whether the context was ended with that cause.
func (c *lazyContext) endedBy(cause error) bool {
	if c.state.Load() == unseen {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looked() {
		return context.Cause(c.real) == cause
	}
	return c.real != nil && c.real.cause == cause
}

func (c *lazyContext) actual() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looked() {
		return c.real.Context
	}
	parent := c.parent
	var cause error
	ended := !c.state.CompareAndSwap(unseen, seen)
	if c.real != nil {
		cause = c.real.cause
		parent = context.WithoutCancel(parent) // whose cause would come first
	}
	ctx, cancel := context.WithCancelCause(parent)
	c.real = &realContext{Context: ctx, cancel: cancel}
	if ended {
		cancel(cause)
	}
	return ctx
}

func (c *lazyContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *lazyContext) Done() <-chan struct{}       { return c.actual().Done() }

func (c *lazyContext) Err() error {
	switch c.state.Load() {
	case unseen:
		return c.parent.Err()
	case endedUnseen:
		return context.Canceled
	}
	return c.actual().Err()
}

func (c *lazyContext) Value(key any) any {
	switch key.(type) {
	case infoKey:
		if c.info != nil {
			return c.info
		}
	case controlKey:
		if c.run != nil {
			return c.run
		}
	}
	return c.actual().Value(key)
}

// WithInfo returns a copy of ctx that carries info: for who calls a handler.
func WithInfo(ctx context.Context, info Info) context.Context {
	return context.WithValue(ctx, infoKey{}, &info)
}

// InfoFrom returns the Info of the delivery that a handler's context belongs to
// [RUN-5], and the zero Info for another context.
func InfoFrom(ctx context.Context) Info {
	if info, ok := ctx.Value(infoKey{}).(*Info); ok {
		return *info
	}
	return Info{}
}
