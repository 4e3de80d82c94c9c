package reactor

import (
	"context"
	"errors"
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
	ctx   context.Context // of extensions
	calls sync.WaitGroup

	mu sync.Mutex
	// Below: under mu.
	live   map[*lease]struct{}
	timer  *time.Timer
	due    time.Time // when timer fires; zero: it is not set
	closed bool
}

// A lease is one delivery that is being handled.
type lease struct {
	delivery interface {
		Extend(context.Context) (time.Time, error)
	}
	cancel   context.CancelCauseFunc
	deadline time.Time
	early    time.Time // when it may be extended, if there is another to extend
	due      time.Time // when to look at it next
	busy     bool      // an extension is under way
	done     bool      // lost, settled elsewhere, or without a deadline now
}

// retryExtend is how long after a failed extension the next is tried.
const retryExtend = 100 * time.Millisecond

// add watches over a delivery until remove; nil if it has no deadline.
func (s *leases) add(d interface {
	Extend(context.Context) (time.Time, error)
}, deadline time.Time, cancel context.CancelCauseFunc) *lease {
	if deadline.IsZero() {
		return nil
	}
	l := &lease{delivery: d, cancel: cancel}
	l.begin(deadline)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		s.live = make(map[*lease]struct{})
	}
	s.live[l] = struct{}{}
	s.set(l.due)
	return l
}

func (s *leases) remove(l *lease) {
	if l == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, l)
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

// begin sets when to look at a lease that lasts until deadline.
func (l *lease) begin(deadline time.Time) {
	now := time.Now()
	left := deadline.Sub(now)
	l.deadline, l.early, l.due = deadline, now.Add(left/3), now.Add(left/2)
}

// halfway is the time at which half of what is left until t is over.
func halfway(t time.Time) time.Time {
	now := time.Now()
	return now.Add(t.Sub(now) / 2)
}

// set makes the timer fire at t, unless it fires before. s.mu is held.
func (s *leases) set(t time.Time) {
	if s.closed || !s.due.IsZero() && !t.Before(s.due) {
		return
	}
	s.due = t
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(t), s.fire)
	} else {
		s.timer.Reset(time.Until(t))
	}
}

// fire looks at every live lease. It runs a few times in AckWait, however many
// there are, because it does not leave those that are nearly due for later.
func (s *leases) fire() {
	for _, l := range s.sweep() {
		l.cancel(ErrLost)
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
	now := time.Now()
	var next time.Time
	s.due = time.Time{}
	for l := range s.live {
		switch {
		case l.done:
			continue
		case !now.Before(l.deadline):
			l.done = true
			lost = append(lost, l)
			continue
		case l.busy:
			// It is looked at again when the extension returns, and at the
			// deadline in case it does not in time.
			l.due = l.deadline
		case !now.Before(l.early):
			l.busy = true
			l.due = l.deadline
			s.calls.Go(func() { s.extend(l) })
		}
		if next.IsZero() || l.due.Before(next) {
			next = l.due
		}
	}
	if !next.IsZero() {
		s.set(next)
	}
	return lost
}

// extend asks the broker, for half of the time that is left: an answer that
// does not come must leave time for another try, and for a settle.
func (s *leases) extend(l *lease) {
	ctx, cancel := context.WithDeadline(s.ctx, halfway(l.deadline))
	defer cancel()
	deadline, err := l.delivery.Extend(ctx)
	if s.extended(l, deadline, err) {
		l.cancel(ErrLost)
	}
}

// extended notes what became of an extension, and reports whether it showed
// that the delivery is lost.
func (s *leases) extended(l *lease, deadline time.Time, err error) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.busy = false
	if _, live := s.live[l]; !live || l.done {
		return false
	}
	switch {
	case err == nil && deadline.IsZero(): // it never times out from now on
		l.done = true
		return false
	case err == nil:
		l.begin(deadline)
	case errors.Is(err, ErrLost):
		l.done = true
		return true
	case errors.Is(err, ErrSettled):
		l.done = true
		return false
	default:
		l.due = time.Now().Add(retryExtend)
		if l.due.After(l.deadline) {
			l.due = l.deadline
		}
		l.early = l.due
	}
	s.set(l.due)
	return false
}
