package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A task is a delivery from its Receive until it is settled, with all that a
// Run needs for it.
type task[T any] struct {
	*Delivery[T]
	lease    lease
	handling lazyContext                 // of its handler
	settling lazyContext                 // of its settle
	batch    atomic.Pointer[lazyContext] // of the handler of its batch, while that has it
	*turn                                // in a Run with keys; nil: in another
}

// take makes a task of a delivery, and keeps it alive until the task is dropped.
func (r *run[T]) take(d *Delivery[T]) *task[T] {
	t := &task[T]{Delivery: d}
	t.handling.parent, t.handling.info, t.handling.run = r.handling, &d.Info, r.control
	t.settling.parent = r.settling
	r.leases.add(&t.lease, t, d.Deadline())
	return t
}

// drop ends a task. Of one that is settled nothing more is done.
func (r *run[T]) drop(t *task[T]) {
	r.leases.remove(&t.lease)
	t.handling.end(nil)
	t.settling.end(nil)
}

// lose implements holder: somebody else has the delivery, or will.
func (t *task[T]) lose() {
	t.handling.end(ErrLost)
	t.settling.end(ErrLost)
	if b := t.batch.Load(); b != nil {
		b.end(ErrLost)
	}
}

// lost reports whether lose was called.
func (t *task[T]) lost() bool { return t.settling.endedBy(ErrLost) }

// handle calls the handler for t, settles t and drops it. It reports whether the
// worker may go on; it may not when the handler panicked.
func (r *run[T]) handle(t *task[T]) (goOn bool) {
	defer r.drop(t)
	if r.refuses() {
		r.release(t)
		return true
	}
	if f := r.opts.Observer.Received; f != nil {
		f(t.Value, t.Info)
	}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit in the handler
			r.end(nil, nil, true)
			r.settle(t, r.retry(t.Info, goexitReason), Settlement{})
			r.rested()
		}
	}()
	clock := r.clock()
	p, err := call(&t.handling, r.handler, t.Value)
	returned = true
	t.handling.end(nil)
	s := Settlement{Cause: err, Duration: clock.read()}
	if p != nil {
		// Before the settle, which may take its time: nothing more is received.
		r.end(nil, p, false)
		s.Cause = p
		r.settle(t, r.retry(t.Info, p.Error()), s)
		r.rested()
		return false
	}
	r.settle(t, r.outcome(t.Info, err), s)
	return true
}

// A clock measures a handler, if somebody wants to know: a look at the time is
// among the dearest things that a Run does.
type clock struct{ began time.Time }

func (r *run[T]) clock() clock {
	if r.opts.Observer.Settled == nil {
		return clock{}
	}
	return clock{time.Now()}
}

func (c clock) read() time.Duration {
	if c.began.IsZero() {
		return 0
	}
	return time.Since(c.began)
}

const goexitReason = "handler called runtime.Goexit"

// release gives back what never reached a handler. When the grace of the drain is
// over, that is left to closing the source.
func (r *run[T]) release(t *task[T]) {
	r.settleIn(&t.settling, t, Outcome{Result: Released}, Settlement{})
}

// outcome is what a handler's error makes of its delivery [RUN-1].
func (r *run[T]) outcome(info Info, err error) Outcome {
	if err == nil {
		return Outcome{Result: Acked}
	}
	return r.guarded(info, func() Outcome { return r.failure(info, err) })
}

// failure is the outcome of an error.
func (r *run[T]) failure(info Info, err error) Outcome {
	if r.handling.Err() != nil {
		return Outcome{Result: Released}
	}
	if _, ok := errors.AsType[*releaseError](err); ok {
		return Outcome{Result: Released}
	}
	if _, ok := errors.AsType[*rejectError](err); ok {
		return Outcome{Result: Rejected, Reason: err.Error()}
	}
	if e, ok := errors.AsType[*retryError](err); ok {
		return Outcome{Result: Retried, After: min(e.after, MaxRetryDelay), Reason: err.Error()}
	}
	return r.again(info, err.Error())
}

// retry is the outcome of a failure that says nothing else.
func (r *run[T]) retry(info Info, reason string) Outcome {
	return r.guarded(info, func() Outcome { return r.again(info, reason) })
}

func (r *run[T]) again(info Info, reason string) Outcome {
	return Outcome{Result: Retried, After: min(r.opts.Backoff(info.Attempt), MaxRetryDelay), Reason: reason}
}

// guarded takes a panic of what makes an outcome, the error's methods or Backoff, as
// one of the handler.
func (r *run[T]) guarded(info Info, outcome func() Outcome) (o Outcome) {
	var p *PanicError
	func() {
		defer recovered(&p)
		o = outcome()
	}()
	if p == nil {
		return o
	}
	r.end(nil, p, false)
	return Outcome{Result: Retried, After: defaultBackoff(info.Attempt), Reason: p.Error()}
}

// settle settles t, trying again while its broker cannot and the deadline is
// not past [RUN-9], or until the drain has taken long enough.
func (r *run[T]) settle(t *task[T], o Outcome, s Settlement) {
	if r.handling.Err() == nil {
		r.settleIn(&t.settling, t, o, s)
		return
	}
	// The grace of the drain may be over. What a late handler held gets one of
	// its own.
	late, cancel := context.WithTimeout(r.lasting, settleGrace)
	defer cancel()
	r.settleIn(late, t, o, s)
}

// settleIn is settle, until ctx ends.
func (r *run[T]) settleIn(ctx context.Context, t *task[T], o Outcome, s Settlement) {
	s.Outcome = o
	for try := 1; ; try++ {
		s.Err = t.Settle(ctx, o)
		if s.Err != nil && context.Cause(ctx) == ErrLost && !errors.Is(s.Err, ErrLost) {
			s.Err = fmt.Errorf("%w: %w", ErrLost, s.Err)
		}
		// A handler of a batch may have settled it by itself.
		own := try == 1 && t.batch.Load() != nil && errors.Is(s.Err, ErrSettled)
		if f := r.opts.Observer.Settled; f != nil && !own {
			f(t.Value, t.Info, s)
		}
		if s.Err == nil || errors.Is(s.Err, ErrSettled) || errors.Is(s.Err, ErrLost) || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(settleBackoff(try)):
		case <-ctx.Done():
		}
	}
	r.settled(t, o, s.Err)
}

var settleBackoff = Exponential(10*time.Millisecond, time.Second)

// settled notes what became of a delivery, for those that wait for its next.
func (r *run[T]) settled(t *task[T], o Outcome, err error) {
	comes := !t.Info.Last() && o.Result == Retried || o.Result == Released
	next := t.Info.Attempt + 1
	switch {
	case err == nil:
		if o.Result == Released {
			next--
		}
	case errors.Is(err, ErrLost):
		comes, o.After = !t.Info.Last() || o.Result == Released, 0
	default:
		comes = false // settled by others; or the drain has ended
	}
	if !comes {
		return
	}
	if t.turn != nil {
		t.again, t.next, t.after = true, next, max(o.After, 0)
	}
	if r.opts.IdleTimeout > 0 {
		r.mu.Lock()
		if due := time.Now().Add(o.After); r.idle.Before(due) {
			r.idle = due
		}
		r.mu.Unlock()
	}
}
