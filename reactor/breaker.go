package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Breaker lets h alone for a while after so many failures in a row, which
// rejects are not; then one call shows whether h works again. Meanwhile the Runs
// that would call h receive nothing, and release what they have.
func Breaker[T any](h Handler[T], failures int, open time.Duration) Handler[T] {
	mustBePositive("Breaker", "failures", failures)
	mustBePositive("Breaker", "open", open)
	b := &breaker{
		most: failures,
		open: open,
		shut: make(map[*control]struct{}),
		why:  &releaseError{fmt.Sprintf("reactor: the breaker is open after %d failures", failures)},
	}
	return func(ctx context.Context, v T) error {
		trial, err := b.enter(ctx)
		if err != nil {
			return err
		}
		failed := true   // unless it returns: it may panic
		unknown := false // h was not called
		defer func() {
			if unknown {
				b.pass(trial)
			} else {
				b.leave(ctx, trial, failed)
			}
		}()
		err = h(ctx, v)
		_, rejected := errors.AsType[*rejectError](err)
		_, released := errors.AsType[*releaseError](err)
		failed = err != nil && !rejected
		unknown = released || err != nil && context.Cause(ctx) == ErrDrainTimeout
		return err
	}
}

// A breaker counts failures in a row. While it is open it keeps the gates of the
// Runs shut that it met.
type breaker struct {
	most int
	open time.Duration
	why  error

	mu sync.Mutex
	// Below: under mu.
	failed  int // in a row
	opened  bool
	trying  bool // one call shows whether it may close
	due     bool // it may be tried
	shut    map[*control]struct{}
	changed chan struct{} // closed with the next change; nil: nobody waits
}

// enter lets a call pass, which may be the trial of an open breaker; or returns
// why not.
func (b *breaker) enter(ctx context.Context) (trial bool, err error) {
	c := controlFrom(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.opened {
		if b.due && !b.trying {
			b.trying = true
			return true, nil
		}
		if c != nil {
			b.keepShut(c)
			return false, b.why
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		b.mu.Lock()
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// leave takes what became of a call that has passed.
func (b *breaker) leave(ctx context.Context, trial, failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.opened && !trial: // it began before
	case !failed:
		b.failed, b.opened, b.trying = 0, false, false
		b.letGo()
	default:
		b.failed++
		if b.failed < b.most && !trial {
			return
		}
		b.opened, b.trying, b.due = true, false, false
		if c := controlFrom(ctx); c != nil {
			b.keepShut(c)
		}
		time.AfterFunc(b.open, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.due = true
			b.letGo()
		})
	}
}

// pass takes that a call that has passed showed nothing: another may try.
func (b *breaker) pass(trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if trial {
		b.trying = false
		b.letGo()
	}
}

// keepShut shuts a Run's gate until letGo. b.mu is held.
func (b *breaker) keepShut(c *control) {
	b.shut[c] = struct{}{}
	c.gate.shut(b)
}

// letGo opens the gates, and wakes those who wait. b.mu is held.
func (b *breaker) letGo() {
	for c := range b.shut {
		c.gate.reopen(b)
	}
	clear(b.shut)
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}
