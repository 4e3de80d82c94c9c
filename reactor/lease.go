package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// leases keeps the deliveries of one Run alive: each is extended when half of
// its time is over, or a little before, and its handler's context is cancelled
// with ErrLost once it could not be [RUN-4, RUN-5]. There is one timer for all
// of them, set for the one that is due first. Most deliveries are settled long
// before they are due, and then cost no timer at all: the timer fires for one
// that is gone, finds the next, and is set anew.
type leases struct {
	ctx    context.Context // of extensions
	base   time.Time       // times are counted from here: that is cheaper
	failed func(error)     // is told of those that failed; nil: nobody is
	calls  sync.WaitGroup

	mu sync.Mutex
	// Below: under mu.
	live   lease // the first and the last are its neighbours; itself none
	timer  *time.Timer
	due    time.Duration // when timer fires; 0: it is not set
	seen   time.Duration // what the clock said last
	span   time.Duration // how long the lease lasted that was added then
	closed bool
}

// A lease is one delivery that is being handled, or waits to be.
type lease struct {
	holder   holder
	deadline time.Duration
	early    time.Duration // when it may be extended, if there is another to extend
	due      time.Duration // when to look at it next
	busy     bool          // an extension is under way
	done     bool          // lost, settled elsewhere, or without a deadline now

	before, after *lease // nil: it is not looked after
}

// A holder has a lease.
type holder interface {
	Extend(context.Context) (time.Time, error)
	lose() // is called when the lease is over, with no lock held
}

// retryExtend is how long after a failed extension the next is tried.
const retryExtend = 100 * time.Millisecond

// add looks after a lease, until remove, unless it has no deadline.
func (s *leases) add(l *lease, h holder, deadline time.Time) {
	if deadline.IsZero() {
		return
	}
	l.holder = h
	end := deadline.Sub(s.base)
	s.mu.Lock()
	defer s.mu.Unlock()
	// A look at the clock is dear. Without, a lease is due when half of its time
	// since the last look is over, which is no later than it has to be, and early
	// as if it lasted as long as that one.
	if l.begin(s.seen, end); s.due == 0 || l.due < s.due {
		s.seen = s.now()
		s.span = end - s.seen
		l.begin(s.seen, end)
	} else {
		l.early = min(l.due, end-s.span*2/3)
	}
	if s.live.after == nil {
		s.live.before, s.live.after = &s.live, &s.live
	}
	l.before, l.after = s.live.before, &s.live
	l.before.after, l.after.before = l, l
	s.set(l.due)
}

func (s *leases) remove(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.after == nil {
		return
	}
	l.before.after, l.after.before = l.after, l.before
	l.before, l.after = nil, nil
}

// close stops the timer and waits for extensions under way.
func (s *leases) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.calls.Wait()
}

func (s *leases) now() time.Duration { return time.Since(s.base) }

// begin sets when to look at a lease that lasts until deadline.
func (l *lease) begin(now, deadline time.Duration) {
	left := deadline - now
	l.deadline, l.early, l.due = deadline, now+left/3, now+left/2
}

// set makes the timer fire at t, unless it fires before. s.mu is held.
func (s *leases) set(t time.Duration) {
	if s.closed || s.due != 0 && t >= s.due {
		return
	}
	s.due = t
	if s.timer == nil {
		s.timer = time.AfterFunc(t-s.now(), s.fire)
	} else {
		s.timer.Reset(t - s.now())
	}
}

// fire looks at every live lease. It runs a few times in AckWait, however many
// there are, because it does not leave those that are nearly due for later.
func (s *leases) fire() {
	for _, l := range s.sweep() {
		l.holder.lose()
	}
}

// sweep starts the extensions that are due, sets the timer for what comes
// next, and returns the leases that are lost.
func (s *leases) sweep() (lost []*lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	now := s.now()
	var next time.Duration
	s.due, s.seen = 0, now
	for l := s.live.after; l != &s.live && l != nil; l = l.after {
		switch {
		case l.done:
			continue
		case now >= l.deadline:
			l.done = true
			lost = append(lost, l)
			continue
		case l.busy:
			// It is looked at again when the extension returns, and at the
			// deadline in case it does not in time.
			l.due = l.deadline
		case now >= l.early:
			l.busy = true
			l.due = l.deadline
			s.calls.Go(func() { s.extend(l) })
		}
		if next == 0 || l.due < next {
			next = l.due
		}
	}
	if next != 0 {
		s.set(next)
	}
	return lost
}

// extend asks the broker, for half of the time that is left: an answer that
// does not come must leave time for another try, and for a settle.
func (s *leases) extend(l *lease) {
	s.mu.Lock()
	half := (l.deadline - s.now()) / 2
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, half)
	defer cancel()
	deadline, err := l.holder.Extend(ctx)
	if s.failed != nil && err != nil && !errors.Is(err, ErrSettled) && s.ctx.Err() == nil {
		s.failed(fmt.Errorf("reactor: extend a delivery: %w", err))
	}
	if s.extended(l, deadline, err) {
		l.holder.lose()
	}
}

// extended notes what became of an extension, and reports whether it showed
// that the delivery is lost.
func (s *leases) extended(l *lease, deadline time.Time, err error) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.busy = false
	if l.after == nil || l.done {
		return false
	}
	switch {
	case err == nil && deadline.IsZero(): // it never times out from now on
		l.done = true
		return false
	case err == nil:
		l.begin(s.now(), deadline.Sub(s.base))
	case errors.Is(err, ErrLost):
		l.done = true
		return true
	case errors.Is(err, ErrSettled):
		l.done = true
		return false
	default:
		l.due = min(s.now()+retryExtend, l.deadline)
		l.early = l.due
	}
	s.set(l.due)
	return false
}
