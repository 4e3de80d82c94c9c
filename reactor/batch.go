package reactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A BatchHandler handles several values at once. nil acks them all, and an
// error does to each what a [Handler]'s would; a [*BatchError], wrapped or not,
// has one for each. It may settle deliveries itself. The context has no Info,
// and ends as a Handler's does, and when any of the deliveries is lost.
type BatchHandler[T any] func(ctx context.Context, batch []*Delivery[T]) error

// RunBatch is [Run] for batches of Options.BatchSize values, or what came until
// BatchWait after the first. Concurrency counts batches, and Key is refused. What
// a handler fails after a delivery of its batch was lost is released.
func RunBatch[T any](ctx context.Context, src Source[T], h BatchHandler[T], opts *Options[T]) error {
	return runBatch(ctx, src, h, opts, newControl())
}

// runBatch is RunBatch, under a control.
func runBatch[T any](ctx context.Context, src Source[T], h BatchHandler[T], opts *Options[T], c *control) error {
	o, err := opts.withDefaults()
	switch {
	case err != nil:
	case h == nil:
		err = errors.New("reactor: the handler is nil")
	case o.Key != nil:
		err = errors.New("reactor: Key is for Run, not for RunBatch")
	}
	if err != nil {
		return errors.Join(err, src.Close())
	}
	if o.BatchSize == 0 {
		o.BatchSize = defaultBatchSize
	}
	if o.BatchWait == 0 {
		o.BatchWait = defaultBatchWait
	}
	r := newRun(src, o, c)
	r.batches = h
	r.worker = r.batching
	return r.serve(ctx)
}

const (
	defaultBatchSize = 100
	defaultBatchWait = 100 * time.Millisecond
)

// A batch is tasks that are handled together.
type batch[T any] struct {
	tasks    []*task[T]
	handling lazyContext
}

// batching is a worker of a RunBatch: it collects, one at a time does, and
// handles.
func (r *run[T]) batching() {
	for {
		b, err := r.collect()
		if err != nil {
			r.end(err, nil, false)
			for _, t := range b.tasks {
				r.release(t)
				r.drop(t)
			}
			return
		}
		r.begin()
		if !r.handleBatch(b) || !r.waitsAgain(1) {
			return
		}
	}
}

// collect receives a batch. It returns what there is of it with an error, too.
func (r *run[T]) collect() (*batch[T], error) {
	b := &batch[T]{}
	b.handling.parent, b.handling.run = r.handling, r.control
	first, err := r.next()
	if err != nil {
		return b, err
	}
	r.mu.Lock()
	r.collecting = true
	r.mu.Unlock()
	b.tasks = append(b.tasks, r.take(first))
	open := r.control.gate.state.Load().open
	if open == nil {
		return b, nil // paused just now
	}
	enough, cancel := context.WithTimeout(open, r.opts.BatchWait)
	defer cancel()
	for len(b.tasks) < r.opts.BatchSize {
		d, err := r.src.Receive(enough)
		switch {
		case err == nil:
			b.tasks = append(b.tasks, r.take(d))
		case enough.Err() != nil && r.receiving.Err() == nil:
			return b, nil
		default:
			return b, err
		}
	}
	return b, nil
}

// handleBatch calls the handler for a batch, settles its tasks and drops them.
// It reports whether the worker may go on; it may not when the handler panicked.
func (r *run[T]) handleBatch(b *batch[T]) (goOn bool) {
	defer func() {
		for _, t := range b.tasks {
			r.drop(t)
		}
		b.handling.end(nil)
	}()
	if r.refuses() {
		for _, t := range b.tasks {
			r.release(t)
		}
		return true
	}
	if r.sift(b); len(b.tasks) == 0 {
		return true
	}
	deliveries := make([]*Delivery[T], len(b.tasks))
	for i, t := range b.tasks {
		deliveries[i] = t.Delivery
		if f := r.opts.Observer.Received; f != nil {
			f(t.Value, t.Info)
		}
	}
	retryAll := func(reason string, s Settlement) {
		r.settleAll(b, func(_ int, t *task[T]) (Outcome, Settlement) { return r.retry(t.Info, reason), s })
		r.rested()
	}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit in the handler
			r.end(nil, nil, true)
			retryAll(goexitReason, Settlement{})
		}
	}()
	clock := r.clock()
	p, err := call(&b.handling, Handler[[]*Delivery[T]](r.batches), deliveries)
	returned = true
	lost := b.handling.endedBy(ErrLost)
	b.handling.end(nil)
	s := Settlement{Cause: err, Duration: clock.read()}
	if p != nil {
		r.end(nil, p, false)
		s.Cause = p
		retryAll(p.Error(), s)
		return false
	}
	errs, each := errors.AsType[*BatchError](err)
	if each && len(errs.Errors) != len(b.tasks) {
		// Not wrapped: one that rejects its value must not reject them all.
		err = fmt.Errorf("reactor: a BatchError with %d errors for a batch of %d: %v", len(errs.Errors), len(b.tasks), err)
		each = false
	}
	r.settleAll(b, func(i int, t *task[T]) (Outcome, Settlement) {
		s := s
		if each {
			s.Cause = errs.Errors[i]
		} else {
			s.Cause = err
		}
		o := r.outcome(t.Info, s.Cause)
		if lost && o.Result == Retried {
			o = Outcome{Result: Released}
		}
		return o, s
	})
	return true
}

// sift takes out of a batch what was lost while it was collected. From now on a
// loss ends the handler's context.
func (r *run[T]) sift(b *batch[T]) {
	b.tasks = slices.DeleteFunc(b.tasks, func(t *task[T]) bool {
		t.batch.Store(&b.handling) // before the look, so that no loss goes unseen
		if !t.lost() {
			return false
		}
		r.drop(t)
		return true
	})
}

// settleAll settles each task of a batch. A drain has one grace for all.
func (r *run[T]) settleAll(b *batch[T], how func(i int, t *task[T]) (Outcome, Settlement)) {
	settle := r.settle
	if r.handling.Err() != nil {
		late, cancel := context.WithTimeout(r.lasting, settleGrace)
		defer cancel()
		settle = func(t *task[T], o Outcome, s Settlement) { r.settleIn(late, t, o, s) }
	}
	for i, t := range b.tasks {
		o, s := how(i, t)
		settle(t, o, s)
	}
}

// BatchError says for each value of a batch what became of it.
type BatchError struct {
	Errors []error // one for each value, in order; nil: done
}

func (e *BatchError) Error() string {
	failed, first := 0, -1
	for i, err := range e.Errors {
		if err != nil {
			if failed++; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return "no failures in a batch"
	}
	return fmt.Sprintf("%d of %d failed, first at index %d: %v", failed, len(e.Errors), first, e.Errors[first])
}

func (e *BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e.Errors {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
