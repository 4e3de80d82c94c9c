package reactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Run receives from src, calls h with each value and settles its delivery by
// what h returns [RUN-1], until ctx ends or the source does. It keeps each
// delivery alive while its handler runs [RUN-4]. Run owns src and closes it
// before it returns.
//
// When ctx ends, Run stops receiving, releases what never reached a handler,
// lets running handlers finish for Options.DrainTimeout, settles them, and
// returns nil after the last one returned [RUN-3]. A handler's context does
// not end with ctx. One that is cut off by the timeout and returns an error
// has its delivery released: interrupted is not failed.
//
// When the source ends by itself, Run drains in the same way and returns the
// source's error [RUN-8]. When a handler panics, Run retries its delivery,
// drains, and panics with a [*PanicError] in the caller's goroutine [RUN-6];
// a handler that calls [runtime.Goexit] ends the caller's goroutine likewise.
//
// A settle that fails is tried again until the delivery's deadline; the handler
// is not called again for it [RUN-9]. An error from closing the source, or
// from options out of their range, is returned.
func Run[T any](ctx context.Context, src Source[T], h Handler[T], opts *Options[T]) error {
	o, err := opts.withDefaults()
	if err == nil && h == nil {
		err = errors.New("reactor: the handler is nil")
	}
	if err != nil {
		return errors.Join(err, src.Close())
	}
	r := &run[T]{src: src, handler: h, opts: o}
	// The contexts end in this order: receiving, at once; handling, after
	// DrainTimeout; settling, a grace after that; lasting, when the last
	// handler has returned and what it held was given back.
	r.receiving, r.stop = context.WithCancel(ctx)
	lasting, ended := context.WithCancel(context.WithoutCancel(ctx))
	settling, settled := context.WithCancel(lasting)
	r.lasting, r.settling = lasting, settling
	r.handling, r.cut = context.WithCancelCause(lasting)
	r.leases.ctx = lasting

	r.work()
	<-r.receiving.Done()
	drain := time.AfterFunc(o.DrainTimeout, func() { r.cut(ErrDrainTimeout) })
	grace := time.AfterFunc(max(o.DrainTimeout, o.DrainTimeout+settleGrace), settled) // the sum may overflow
	r.workers.Wait()
	drain.Stop()
	grace.Stop()
	ended()
	r.leases.close()

	if err := src.Close(); err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("reactor: close the source: %w", err))
	}
	switch {
	case r.panicked != nil:
		panic(r.panicked)
	case r.exited:
		runtime.Goexit()
	}
	return r.err
}

// settleGrace is how long, after handlers were cut off, a settle may still
// wait for its broker.
const settleGrace = 5 * time.Second

// run is the state of one Run.
type run[T any] struct {
	src     Source[T]
	handler Handler[T]
	opts    Options[T]
	leases  leases

	receiving, handling, settling, lasting context.Context
	stop                                   context.CancelFunc
	cut                                    context.CancelCauseFunc
	workers                                sync.WaitGroup

	mu sync.Mutex
	// Below: under mu while workers run.
	waiting  int // workers that wait in Receive
	working  int // workers that do not
	stopped  bool
	err      error
	panicked *PanicError
	exited   bool
}

// work starts a worker that waits in Receive.
func (r *run[T]) work() {
	r.waiting++
	r.workers.Go(r.worker)
}

// worker receives and handles. A worker that received something leaves another
// one waiting in its place, within Concurrency, so goroutines grow with the
// work and an idle Run has one.
func (r *run[T]) worker() {
	var current *Delivery[T]
	defer func() {
		if current != nil { // runtime.Goexit in the handler
			r.end(nil, nil, true)
			r.settle(r.settling, current, Outcome{Result: Retried, After: r.backoff(current.Info), Reason: "handler called runtime.Goexit"}, Settlement{})
		}
	}()
	for {
		d, err := r.src.Receive(r.receiving)
		if err != nil {
			r.end(err, nil, false)
			return
		}
		r.mu.Lock()
		r.waiting--
		r.working++
		if r.waiting == 0 && r.working < r.opts.Concurrency && r.receiving.Err() == nil {
			r.work()
		}
		r.mu.Unlock()

		current = d
		panicked := r.handle(d)
		current = nil
		if panicked {
			return
		}
		r.mu.Lock()
		r.working--
		r.waiting++
		enough := r.waiting > maxWaiting
		if enough {
			r.waiting--
		}
		r.mu.Unlock()
		if enough {
			return
		}
	}
}

// maxWaiting is how many workers stay in Receive when there is nothing to do.
const maxWaiting = 16

// end stops receiving and keeps the first reason for it. That ctx has ended is
// no error, and then neither is what a Receive returns.
func (r *run[T]) end(err error, p *PanicError, exited bool) {
	r.mu.Lock()
	if !r.stopped && r.receiving.Err() == nil {
		r.err = err
	}
	r.stopped = true
	if r.panicked == nil {
		r.panicked = p
	}
	r.exited = r.exited || exited
	r.mu.Unlock()
	r.stop()
}

// handle calls the handler for d and settles d. It reports whether the handler
// panicked.
func (r *run[T]) handle(d *Delivery[T]) (panicked bool) {
	if r.receiving.Err() != nil {
		r.settle(r.settling, d, Outcome{Result: Released}, Settlement{})
		return false
	}
	if f := r.opts.Observer.Received; f != nil {
		f(d.Value, d.Info)
	}
	ctx, cancel := context.WithCancelCause(r.handling)
	defer cancel(nil)
	settling, drop := context.WithCancelCause(r.settling)
	defer drop(nil)
	l := r.leases.add(d, d.Deadline(), func(cause error) {
		cancel(cause)
		drop(cause)
	})
	defer r.leases.remove(l)

	began := time.Now()
	p, err := call(WithInfo(ctx, d.Info), r.handler, d.Value)
	cancel(nil)
	s := Settlement{Cause: err, Duration: time.Since(began)}
	if p != nil {
		// Before the settle, which may take its time: nothing more is received.
		r.end(nil, p, false)
		s.Cause = p
		r.settle(settling, d, Outcome{Result: Retried, After: r.backoff(d.Info), Reason: p.Error()}, s)
		return true
	}
	r.settle(settling, d, r.outcome(d.Info, err), s)
	return false
}

// outcome is what a handler's error makes of its delivery [RUN-1].
func (r *run[T]) outcome(info Info, err error) Outcome {
	if err == nil {
		return Outcome{Result: Acked}
	}
	if r.handling.Err() != nil {
		return Outcome{Result: Released}
	}
	if _, ok := errors.AsType[*rejectError](err); ok {
		return Outcome{Result: Rejected, Reason: err.Error()}
	}
	if e, ok := errors.AsType[*retryError](err); ok {
		return Outcome{Result: Retried, After: min(e.after, MaxRetryDelay), Reason: err.Error()}
	}
	return Outcome{Result: Retried, After: r.backoff(info), Reason: err.Error()}
}

func (r *run[T]) backoff(info Info) time.Duration {
	return min(r.opts.Backoff(info.Attempt), MaxRetryDelay)
}

// settle settles d, trying again while its broker cannot and the deadline is
// not past [RUN-9]. ctx ends when the delivery is lost, with ErrLost as its
// cause, and when the drain has taken long enough.
func (r *run[T]) settle(ctx context.Context, d *Delivery[T], o Outcome, s Settlement) {
	if r.handling.Err() != nil {
		// The grace of the drain may be over. What a late handler held gets
		// one of its own.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(r.lasting, settleGrace)
		defer cancel()
	}
	s.Outcome = o
	for try := 1; ; try++ {
		s.Err = d.Settle(ctx, o)
		if s.Err != nil && context.Cause(ctx) == ErrLost && !errors.Is(s.Err, ErrLost) {
			s.Err = fmt.Errorf("%w: %w", ErrLost, s.Err)
		}
		if f := r.opts.Observer.Settled; f != nil {
			f(d.Value, d.Info, s)
		}
		if s.Err == nil || errors.Is(s.Err, ErrSettled) || errors.Is(s.Err, ErrLost) || ctx.Err() != nil {
			return
		}
		select {
		case <-time.After(settleBackoff(try)):
		case <-ctx.Done():
		}
	}
}

var settleBackoff = Exponential(10*time.Millisecond, time.Second)
