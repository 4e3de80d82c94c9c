package reactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Run receives from src, calls h with each value and settles the delivery by
// what h returns [RUN-1]. It keeps each delivery alive until it is settled
// [RUN-4], and tries a settle that fails again until the deadline, without
// calling h again [RUN-9]. It owns src, and closes it at the end.
//
// When ctx ends, Run drains: it stops receiving, releases what never reached a
// handler, lets handlers finish for Options.DrainTimeout, settles them, and
// returns nil after the last one returned [RUN-3]. Their contexts do not end
// with ctx. What is cut off then and fails is released: it was interrupted.
//
// When the source ends by itself, Run drains and returns its error [RUN-8].
// When a handler panics, Run retries the delivery, drains, and panics with a
// [*PanicError] in the caller's goroutine [RUN-6]; [runtime.Goexit] likewise.
func Run[T any](ctx context.Context, src Source[T], h Handler[T], opts *Options[T]) error {
	return runOne(ctx, src, h, opts, newControl())
}

// runOne is Run, under a control.
func runOne[T any](ctx context.Context, src Source[T], h Handler[T], opts *Options[T], c *control) error {
	o, err := opts.withDefaults()
	switch {
	case err != nil:
	case h == nil:
		err = errors.New("reactor: the handler is nil")
	case o.BatchSize != 0 || o.BatchWait != 0:
		err = errors.New("reactor: BatchSize and BatchWait are for RunBatch")
	}
	if err != nil {
		return errors.Join(err, src.Close())
	}
	r := newRun(src, o, c)
	r.handler = h
	r.worker = r.single
	if o.Key != nil {
		r.lanes = &lanes[T]{live: make(map[string]*lane[T])}
		r.worker = r.keyed
	}
	return r.serve(ctx)
}

// settleGrace is how long, after handlers were cut off, a settle may still
// wait for its broker.
const settleGrace = 5 * time.Second

// run is the state of one Run.
type run[T any] struct {
	src     Source[T]
	opts    Options[T]
	handler Handler[T]
	batches BatchHandler[T]
	worker  func() // what a worker that waits in Receive does
	control *control
	leases  leases

	receiving, handling, settling, lasting context.Context
	stop                                   context.CancelFunc
	cut                                    context.CancelCauseFunc
	giveUp                                 context.CancelFunc // of settles
	workers                                sync.WaitGroup

	mu sync.Mutex
	// Below: under mu while workers run.
	waiting    int       // workers that wait in Receive
	working    int       // workers that do not
	collecting bool      // a batch has begun
	lanes      *lanes[T] // what waits for its key; nil: there are none
	idle       time.Time // when there was last something to do, or will be
	quieted    []chan struct{}
	stopped    bool // the reason is known
	draining   bool // nothing is started any more
	err        error
	panicked   *PanicError
	exited     bool
}

func newRun[T any](src Source[T], o Options[T], c *control) *run[T] {
	return &run[T]{src: src, opts: o, control: c}
}

// serve works until the end, and returns what Run does.
func (r *run[T]) serve(ctx context.Context) error {
	// The contexts end in this order: receiving, at once; handling, after
	// DrainTimeout; settling, a grace after that; lasting, when the last
	// handler has returned and what it held was given back.
	r.receiving, r.stop = context.WithCancel(ctx)
	defer r.stop()
	lasting, ended := context.WithCancel(context.WithoutCancel(ctx))
	settling, settled := context.WithCancel(lasting)
	r.lasting, r.settling, r.giveUp = lasting, settling, settled
	r.handling, r.cut = context.WithCancelCause(lasting)
	r.leases.ctx, r.leases.base, r.leases.failed = lasting, time.Now(), r.opts.Observer.Error
	r.control.begin(r.receiving, r)

	r.mu.Lock()
	r.idle = time.Now()
	r.work()
	r.mu.Unlock()
	r.untilEnd()
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	r.control.drains()
	drain := time.AfterFunc(r.opts.DrainTimeout, r.cutOff)
	r.releaseHeld()
	r.workers.Wait()
	drain.Stop()
	ended()
	r.leases.close()
	r.control.end()

	if err := r.src.Close(); err != nil {
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

// untilEnd waits until nothing more is to be received: it was told to stop,
// the source has ended, or there was nothing to do for IdleTimeout.
func (r *run[T]) untilEnd() {
	if r.opts.IdleTimeout == 0 {
		<-r.receiving.Done()
		return
	}
	timer := time.NewTimer(r.opts.IdleTimeout)
	defer timer.Stop()
	for {
		select {
		case <-r.receiving.Done():
			return
		case <-timer.C:
			left := r.idleFor(time.Now())
			if left <= 0 {
				r.end(nil, nil, false)
				return
			}
			timer.Reset(left)
		}
	}
}

// idleFor returns how much is left of IdleTimeout.
func (r *run[T]) idleFor(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if busy := r.working > 0 || r.collecting || !r.lanes.empty() || r.control.gate.closed(); busy && r.idle.Before(now) {
		r.idle = now // not if a retry is due later
	}
	return r.opts.IdleTimeout - now.Sub(r.idle)
}

// work starts a worker that waits in Receive. r.mu is held.
func (r *run[T]) work() {
	r.waiting++
	r.workers.Go(r.worker)
}

// next returns the next delivery, while the gate is open.
func (r *run[T]) next() (*Delivery[T], error) {
	for {
		open, err := r.control.gate.wait(r.receiving)
		if err == nil {
			err = r.receiving.Err() // which ends before open does
		}
		if err != nil {
			return nil, err
		}
		if r.lanes != nil {
			r.lanes.began.Store(int64(r.leases.now()))
		}
		d, err := r.src.Receive(open)
		if err == nil || open.Err() == nil || r.receiving.Err() != nil {
			return d, err
		}
	}
}

// single is a worker that receives and handles one delivery at a time. One that
// received something leaves another waiting in its place, within Concurrency, so
// goroutines grow with the work and an idle Run has one.
func (r *run[T]) single() {
	for {
		d, err := r.next()
		if err != nil {
			r.end(err, nil, false)
			return
		}
		t := r.take(d)
		r.begin()
		if !r.handle(t) || !r.waitsAgain(maxWaiting) {
			return
		}
	}
}

// begin notes that a worker that waited has something to work on, and leaves
// another waiting in its place, within Concurrency.
func (r *run[T]) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collecting = false
	r.waiting--
	r.working++
	if r.waiting == 0 && r.working < r.opts.Concurrency && r.receiving.Err() == nil {
		r.work()
	}
}

// waitsAgain notes that a worker has done what it worked on, and reports whether
// it is to wait again, with most who wait.
func (r *run[T]) waitsAgain(most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest()
	if r.waiting >= most {
		return false
	}
	r.waiting++
	return true
}

// maxWaiting is how many workers stay in Receive when there is nothing to do.
const maxWaiting = 16

// rest notes that a worker has done what it worked on. r.mu is held.
func (r *run[T]) rest() {
	r.working--
	if r.working > 0 {
		return
	}
	if r.opts.IdleTimeout > 0 {
		if now := time.Now(); r.idle.Before(now) {
			r.idle = now
		}
	}
	for _, c := range r.quieted {
		close(c)
	}
	r.quieted = nil
}

func (r *run[T]) rested() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest()
}

// quiet returns a channel that is closed when no handler runs.
func (r *run[T]) quiet() <-chan struct{} {
	c := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.working == 0 {
		close(c)
	} else {
		r.quieted = append(r.quieted, c)
	}
	return c
}

// cutOff ends the handlers that run, as when DrainTimeout is over, and the settles a
// moment later.
func (r *run[T]) cutOff() {
	r.cut(ErrDrainTimeout)
	grace := time.AfterFunc(settleGrace, r.giveUp)
	context.AfterFunc(r.lasting, func() { grace.Stop() })
}

// refuses reports whether nothing that was received may be handled now.
func (r *run[T]) refuses() bool { return r.receiving.Err() != nil || r.control.gate.closed() }

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
