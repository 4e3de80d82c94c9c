package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// wake makes the keeper look now, or soon.
func (s *source) wake(at bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := time.Now()
	s.pause = min(minPause, s.outbox.opts.Poll)
	if !at {
		due = due.Add(s.pause)
	}
	if s.term != 0 && due.Before(s.lookAt) {
		s.lookAt = due
		s.kicks()
	}
}

// applies makes the keeper ask for the lease now.
func (s *source) applies() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyAt = time.Time{}
	s.kicks()
}

// keep is the keeper. Each call of the database has a deadline of its own, and
// none is cut short by Close.
func (s *source) keep() {
	defer close(s.kept)
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		wait, err := s.step()
		if err != nil {
			failures++
			s.outbox.opts.Report.Do(context.Background(), fmt.Errorf("outbox: relay of %v: %w", s.outbox.table, err))
			wait = min(time.Duration(failures)*50*time.Millisecond, time.Second)
		} else {
			failures = 0
		}
		timer.Reset(wait)
		kick := s.kick
		if err != nil {
			kick = nil // not before the pause is over
		}
		select {
		case <-kick:
		case <-timer.C:
		case <-s.closing:
			s.leave()
			return
		}
	}
}

// step does what is due, and returns how long there will be nothing.
func (s *source) step() (time.Duration, error) {
	s.mu.Lock()
	if s.term != 0 && !time.Now().Before(s.expires) {
		s.forgets()
	}
	working, pause := s.term != 0, time.Until(s.applyAt)
	s.mu.Unlock()
	switch {
	case working:
	case pause > 0:
		return pause, nil
	default:
		got, err := s.acquire()
		if err != nil {
			return 0, err
		}
		if !got {
			pause := s.outbox.opts.Lease / 4
			pause = pause/2 + rand.N(pause/2+1) // not all at once
			s.mu.Lock()
			s.applyAt = time.Now().Add(pause)
			s.mu.Unlock()
			return pause, nil
		}
	}
	w, wait := s.plan()
	switch {
	case w == nil:
		return wait, nil
	case w.looks:
		some, err := s.look(w)
		if err != nil || !some {
			return 0, err
		}
	}
	return 0, s.exchange(w)
}

// undo takes back what a transaction that failed was to write.
func (s *source) undo(w *work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.term == s.term {
		s.acked = append(w.acked, s.acked...)
		s.failed = append(w.failed, s.failed...)
	}
}

// merge takes what a transaction that began at some time has fetched.
func (s *source) merge(w *work, began time.Time, f fetched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term != w.term {
		return
	}
	s.expires = began.Add(s.outbox.opts.Lease)
	s.announces()
	now := time.Now()
	if len(s.ready) > 0 {
		s.signals() // a Receive may have found that the lease had run out
	}
	s.restTo = now.Add(min(restFactor*now.Sub(began), s.outbox.opts.Poll))
	if w.limit == 0 {
		return
	}
	for _, e := range f.entries {
		b := s.blocked[e.key]
		switch {
		case b != nil && e.seq < b.seq:
			b.seq = e.seq
		case b != nil:
		default:
			s.ready = append(s.ready, e)
		}
	}
	for _, b := range f.waiting {
		s.blocks(b.key, b.seq, now.Add(b.wait))
	}
	for _, u := range f.unfit {
		s.first = now
		s.notes(u, now)
	}
	if n := f.last; f.full {
		s.seen = n
	} else if n > s.seen {
		s.seen = n
	}
	s.moves(f)
	s.parked = w.parked
	if w.sweep {
		s.sweepAt = now.Add(max(sweepPause, 10*now.Sub(began)))
	}
	s.found(now, f.last > 0, f.full, s.outbox.opts.Poll)
	if len(f.entries) > 0 {
		s.hungry = false
		s.window = min(2*s.window, s.outbox.opts.Window)
		slices.SortFunc(s.ready, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
		s.signals()
	}
}

// starts begins a term. s.mu is not held.
func (s *source) starts(term int64, began time.Time, careful bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.forgets()
	s.term, s.expires = term, began.Add(s.outbox.opts.Lease)
	s.out = make(map[int64]*entry)
	s.blocked = make(map[string]*block)
	s.window = s.outbox.opts.Window
	if careful {
		s.window = 1
	}
	s.position = position{sweepAt: now}
	s.schedule = schedule{lookAt: now, hungry: s.hungry}
	s.announces()
}

// forgets ends a term: what is held is lost. s.mu is held.
func (s *source) forgets() {
	s.term = 0
	s.ready, s.out, s.acked, s.failed, s.blocked = nil, nil, nil, nil, nil
	s.announces()
}

// announces tells those that wait in Extend. s.mu is held; closing a channel
// does not block.
func (s *source) announces() {
	close(s.renewed)
	s.renewed = make(chan struct{})
}

// leave writes what was settled, gives up the lease, and wakes the other sources.
func (s *source) leave() {
	s.mu.Lock()
	w := &work{term: s.term, acked: s.acked, failed: s.failed}
	s.forgets()
	s.mu.Unlock()
	s.outbox.remove(s)
	if w.term == 0 {
		return
	}
	if err := s.finish(w); err != nil && !errors.Is(err, messaging.ErrLost) {
		s.closeErr = fmt.Errorf("outbox: relay of %v: write what was settled: %w", s.outbox.table, err)
		return
	}
	for _, other := range s.outbox.all() {
		other.applies()
	}
}
