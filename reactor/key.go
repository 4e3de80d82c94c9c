package reactor

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// lanes is what a Run with Options.Key keeps of keys: a key is in the map while
// one of its values is handled, waits, or has failed and comes again. A lane is
// no goroutine: one worker receives, and each of the others follows lanes that
// have something to do.
type lanes[T any] struct {
	live     map[string]*lane[T]
	runnable []*lane[T] // with something to do, and without a worker
	held     int        // values that wait, in all lanes

	began atomic.Int64 // when the last Receive began, as leases count time
}

// A lane is the values of one key, in order.
type lane[T any] struct {
	key     string
	waiting []*task[T]
	busy    bool     // a worker follows it, or it is runnable
	awaited *awaited // what comes later waits for this
}

// A turn is what a task is to its lane.
type turn struct {
	key     string
	ackWait time.Duration // that it had when it came; 0: it never times out
	again   bool          // it is settled, and comes again
	next    int           // then in that attempt
	after   time.Duration // and not before that
}

// An awaited is a value that failed, and comes again.
type awaited struct {
	sequence uint64
	attempt  int // that it has then, at least

	due      time.Duration // when it may come, as leases count time
	patience time.Duration // how long after that a lane waits
	asked    time.Duration // after that, was the source asked again?
	chances  int           // how often it was
	timer    *time.Timer   // ends the wait
}

// is reports whether a delivery is the one that is awaited.
func (a *awaited) is(info Info) bool {
	if a.sequence != 0 || info.Sequence != 0 {
		return a.sequence == info.Sequence
	}
	return info.Attempt >= a.attempt
}

const (
	// maxHeld is how many values wait for their keys, at most.
	maxHeld = 1 << 14

	// keyPatience is how long after it was due a key waits for a value to come
	// again, from a source whose deliveries never time out. From another it is
	// as long as they last: whoever else got the value, and lost it, has given
	// it back by then.
	keyPatience = 30 * time.Second

	// keyChances is after how many such times it goes on although the source
	// always had something else to give.
	keyChances = 3
)

// empty reports whether no key has anything to do, or to wait for. It is of use
// without lanes, too.
func (s *lanes[T]) empty() bool { return s == nil || len(s.live) == 0 }

// runs makes a lane runnable that has something to do.
func (s *lanes[T]) runs(l *lane[T]) {
	l.busy = true
	s.runnable = append(s.runnable, l)
}

// next takes a lane that is runnable, and the first of its values.
func (s *lanes[T]) next() (l *lane[T], t *task[T]) {
	l, s.runnable[0] = s.runnable[0], nil
	s.runnable = s.runnable[1:]
	t, l.waiting[0] = l.waiting[0], nil
	l.waiting = l.waiting[1:]
	s.held--
	return l, t
}

// leave leaves a lane that a worker has followed, for others if it has something
// to do.
func (s *lanes[T]) leave(l *lane[T]) {
	l.busy = false
	switch {
	case l.awaited != nil:
	case len(l.waiting) > 0:
		s.runs(l)
	default:
		delete(s.live, l.key)
	}
}

// insert puts a value in its place, which is the end unless it was received
// before, and returns one whose place it takes: an earlier delivery of the same
// that was lost.
func (l *lane[T]) insert(t *task[T]) (lost *task[T]) {
	i := len(l.waiting)
	if n := t.Info.Sequence; n != 0 {
		for i > 0 && l.waiting[i-1].Info.Sequence > n {
			i--
		}
		if i > 0 && l.waiting[i-1].Info.Sequence == n {
			lost, l.waiting[i-1] = l.waiting[i-1], t
			return lost
		}
	}
	l.waiting = slices.Insert(l.waiting, i, t)
	return nil
}

// keyed is a worker of a Run with keys that begins in Receive. There is one such
// at a time, so that the order in which values are received is known.
func (r *run[T]) keyed() {
	for {
		d, err := r.next()
		if err != nil {
			r.end(err, nil, false)
			return
		}
		t := r.take(d)
		t.turn = &turn{}
		if deadline := d.Deadline(); !deadline.IsZero() {
			t.ackWait = time.Until(deadline)
		}
		if p := r.keyOf(t); p != nil {
			r.end(nil, p, false)
			r.settle(t, r.retry(t.Info, p.Error()), Settlement{Cause: p})
			r.drop(t)
			return
		}
		if !r.place(t) || r.follow() {
			continue
		}
		return
	}
}

// keyOf asks for the key of a value. Options.Key may panic, like a handler, or
// call runtime.Goexit.
func (r *run[T]) keyOf(t *task[T]) (p *PanicError) {
	returned := false
	defer func() {
		if !returned && p == nil {
			r.end(nil, nil, true)
			r.settle(t, r.retry(t.Info, goexitReason), Settlement{})
			r.drop(t)
		}
	}()
	defer recovered(&p)
	t.key = r.opts.Key(t.Value)
	returned = true
	return nil
}

// place puts what the receiving worker has received in its lane, and reports
// whether that worker may receive no more.
func (r *run[T]) place(t *task[T]) (enough bool) {
	r.mu.Lock()
	if r.refuses() {
		r.mu.Unlock()
		r.release(t)
		r.drop(t)
		return false
	}
	defer r.mu.Unlock()
	s := r.lanes
	l := s.live[t.key]
	if l == nil {
		l = &lane[T]{key: t.key}
		s.live[t.key] = l
	}
	s.held++
	if l.awaited != nil && l.awaited.is(t.Info) {
		l.awaited.timer.Stop()
		l.awaited = nil
		l.waiting = slices.Insert(l.waiting, 0, t)
	} else if lost := l.insert(t); lost != nil {
		s.held--
		r.leases.remove(&lost.lease)
	}
	if !l.busy && l.awaited == nil {
		s.runs(l)
	}
	return len(s.runnable) > 0 || s.held >= maxHeld
}

// follow makes the worker that received one that handles what is runnable, and
// reports whether it is to receive again.
func (r *run[T]) follow() (receives bool) {
	r.mu.Lock()
	s := r.lanes
	switch {
	case len(s.runnable) > 0 && r.working < r.opts.Concurrency:
		r.waiting--
		r.working++
		r.mu.Unlock()
		return r.followAll()
	case len(s.runnable) > 0 || !r.mayHold():
		r.waiting-- // whoever finishes goes on
		r.mu.Unlock()
		return false
	default: // another has taken it
		r.mu.Unlock()
		return true
	}
}

// mayHold reports whether more may be received. There is a bound, but not when
// everything waits for what is yet to be received. r.mu is held.
func (r *run[T]) mayHold() bool { return r.lanes.held < maxHeld || r.working == 0 }

// followAll handles what is runnable, one value after another, while there is
// any, and reports whether the worker is to receive then.
func (r *run[T]) followAll() (receives bool) {
	for {
		r.mu.Lock()
		s := r.lanes
		if len(s.runnable) == 0 {
			r.rest()
			receives = r.waiting == 0 && r.mayHold()
			if receives {
				r.waiting++
			}
			r.mu.Unlock()
			return receives
		}
		l, t := s.next()
		if r.waiting == 0 && r.working < r.opts.Concurrency && s.held < maxHeld && r.receiving.Err() == nil {
			r.work()
		}
		r.mu.Unlock()
		if t.lost() { // while it waited
			t.again, t.next = !t.Info.Last(), t.Info.Attempt+1
			r.drop(t)
		} else if !r.handle(t) {
			return false
		}
		r.mu.Lock()
		if t.again {
			r.await(l, t)
		}
		s.leave(l)
		r.mu.Unlock()
	}
}

// await makes a lane wait for a value to come again. r.mu is held.
func (r *run[T]) await(l *lane[T], t *task[T]) {
	a := &awaited{sequence: t.Info.Sequence, attempt: t.next}
	known := a.sequence != 0 || a.attempt > t.Info.Attempt // from others that wait
	if i := slices.IndexFunc(l.waiting, func(t *task[T]) bool { return a.is(t.Info) }); known && i >= 0 {
		// It was lost while it was handled, and is here already.
		came := l.waiting[i]
		l.waiting = slices.Insert(slices.Delete(l.waiting, i, i+1), 0, came)
		return
	}
	if r.draining {
		return
	}
	a.due, a.patience = r.leases.now()+t.after, min(t.ackWait, math.MaxInt64/4)
	a.asked = a.due
	if a.patience == 0 {
		a.patience = keyPatience
	}
	l.awaited = a
	a.timer = time.AfterFunc(t.after+a.patience, func() { r.awaitNoMore(l, a) })
}

// patience returns how much longer a lane waits. What it waits for must have had
// its chance to come: a Receive that lasted as long, or some that others came of.
// While every worker is busy, or the gate is closed, there is none. r.mu is held.
func (r *run[T]) patience(a *awaited) time.Duration {
	now, began := r.leases.now(), time.Duration(r.lanes.began.Load())
	left := max(began, a.due) + a.patience - now
	switch {
	case r.control.gate.closed():
		a.due = now
		return a.patience
	case r.waiting > 0 && left <= 0:
		return 0
	case began >= a.asked:
		a.asked = now
		if a.chances++; a.chances == keyChances {
			return 0
		}
	}
	if r.waiting == 0 {
		left = a.patience
	}
	return left
}

// awaitNoMore lets a lane go on: what it waits for went to another member, or
// is gone.
func (r *run[T]) awaitNoMore(l *lane[T], a *awaited) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.awaited != a || r.draining {
		return
	}
	if left := r.patience(a); left > 0 {
		a.timer.Reset(left)
		return
	}
	l.awaited = nil
	if l.busy {
		return
	}
	r.lanes.leave(l)
	if len(r.lanes.runnable) > 0 && r.working < r.opts.Concurrency {
		r.working++
		r.workers.Go(func() {
			if r.followAll() {
				r.keyed()
			}
		})
	}
}

// giveBack starts releaseHeld, unless a drain does that, and returns a channel
// that is closed when it has ended: a release may take its time.
func (r *run[T]) giveBack() <-chan struct{} {
	done := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lanes == nil || r.draining {
		close(done)
		return done
	}
	r.control.gate.shut(done) // also when Resume comes first: what is given back goes before what is new
	r.workers.Go(func() {
		defer close(done)
		defer r.control.gate.reopen(done)
		r.releaseHeld()
	})
	return done
}

// releaseHeld gives back what waits for its key, in its order.
func (r *run[T]) releaseHeld() {
	if r.lanes == nil {
		return
	}
	r.mu.Lock()
	s := r.lanes
	var held []*task[T]
	for _, l := range s.live {
		held = append(held, l.waiting...)
		l.waiting = nil
		if l.awaited != nil && r.draining {
			l.awaited.timer.Stop()
		}
	}
	for _, l := range s.runnable {
		delete(s.live, l.key)
	}
	s.runnable, s.held = nil, 0
	r.mu.Unlock()
	slices.SortStableFunc(held, func(a, b *task[T]) int { return cmp.Compare(a.Info.Sequence, b.Info.Sequence) })
	for _, t := range held {
		r.release(t)
		r.drop(t)
	}
}
