package local

import (
	"errors"
	"fmt"
	"time"
)

// A Line is the Receives of one subscription that wait, in the order in which they
// came; but one that was woken in vain goes first the next time, or who acks and
// receives again at once could keep it waiting for ever [SUB-5].
//
// One is woken at a time: it looks again, and sees to it that the next is woken if
// there is more. M is what a member is known by.
type Line[M comparable] struct {
	first, last *Waiter[M]
	coming      int // were woken, and have not come yet
	starving    int // came in vain

	timer *time.Timer
	alarm time.Time // when timer wakes somebody; zero: it is not set
}

// A Waiter is a Receive that waits, or has waited: it may be used again.
type Waiter[M comparable] struct {
	// Wake is sent to when the Receive is to look again.
	Wake <-chan struct{}

	member        M
	wake          chan struct{} // the same; has room for one
	woken         bool          // off the line, and not come back yet
	starving      bool
	before, after *Waiter[M]
}

// NewWaiter returns a waiter of a member.
func NewWaiter[M comparable](member M) *Waiter[M] {
	wake := make(chan struct{}, 1)
	return &Waiter[M]{Wake: wake, wake: wake, member: member}
}

// Empty reports whether nobody waits.
func (l *Line[M]) Empty() bool { return l.first == nil }

// Quiet reports whether nobody is to be woken: nobody waits, or somebody is on the
// way and will see to the next.
func (l *Line[M]) Quiet() bool { return l.Empty() || l.coming > 0 }

// Starving reports whether somebody waits, or comes, who came in vain before. Those
// who come anew stand in line behind.
func (l *Line[M]) Starving() bool { return l.starving > 0 }

// Join puts a waiter in the line: at its end, or at its front if it was woken and
// found nothing.
func (l *Line[M]) Join(w *Waiter[M], woken bool) {
	if w.starving = woken; woken {
		l.starving++
		w.before, w.after = nil, l.first
	} else {
		w.before, w.after = l.last, nil
	}
	if w.before == nil {
		l.first = w
	} else {
		w.before.after = w
	}
	if w.after == nil {
		l.last = w
	} else {
		w.after.before = w
	}
}

// Arrive undoes Join when the waiter has come back, for whatever reason. It reports
// whether it was woken; if not, it has left the line now.
func (l *Line[M]) Arrive(w *Waiter[M]) (woken bool) {
	if w.starving {
		l.starving--
	}
	if !w.woken {
		l.unlink(w)
		return false
	}
	w.woken = false
	l.coming--
	select {
	case <-w.wake: // it came for another reason
	default:
	}
	return true
}

// Next wakes the first of the line, which is not empty.
func (l *Line[M]) Next() { l.call(l.first) }

// All wakes everybody.
func (l *Line[M]) All() {
	for l.first != nil {
		l.call(l.first)
	}
}

// Member wakes those of one member.
func (l *Line[M]) Member(m M) {
	for w := l.first; w != nil; {
		next := w.after
		if w.member == m {
			l.call(w)
		}
		w = next
	}
}

func (l *Line[M]) call(w *Waiter[M]) {
	l.unlink(w)
	w.woken = true
	l.coming++
	w.wake <- struct{}{} // has room for one
}

func (l *Line[M]) unlink(w *Waiter[M]) {
	if w.before == nil {
		l.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		l.last = w.before
	} else {
		w.after.before = w.before
	}
	w.before, w.after = nil, nil
}

// SetAlarm has ring called when something becomes due, unless it is earlier anyway.
// ring calls Rang, under the mutex.
func (l *Line[M]) SetAlarm(due, now time.Time, ring func()) {
	if due.IsZero() || !l.alarm.IsZero() && !due.Before(l.alarm) {
		return
	}
	l.alarm = due
	if l.timer == nil {
		l.timer = time.AfterFunc(due.Sub(now), ring)
	} else {
		l.timer.Reset(due.Sub(now))
	}
}

// StopAlarm undoes SetAlarm.
func (l *Line[M]) StopAlarm() {
	if l.timer != nil {
		l.timer.Stop()
		l.alarm = time.Time{}
	}
}

// Rang wakes somebody, if there is somebody to wake, and reports whether it did.
func (l *Line[M]) Rang() bool {
	l.alarm = time.Time{}
	if l.Quiet() {
		return false
	}
	l.Next()
	return true
}

// Alarm returns when somebody will be woken by time; zero: never.
func (l *Line[M]) Alarm() time.Time { return l.alarm }

// Check returns how many wait, and what is wrong with the accounts when nothing
// moves. It is for tests.
func (l *Line[M]) Check() (waiting int, err error) {
	starving := 0
	for w := l.first; w != nil; w = w.after {
		waiting++
		if w.starving {
			starving++
		}
		if w.woken || len(w.wake) > 0 {
			return waiting, errors.New("a waiter in the line was woken")
		}
	}
	switch {
	case l.coming != 0:
		return waiting, fmt.Errorf("%d waiters are said to be on the way", l.coming)
	case l.starving != starving:
		return waiting, fmt.Errorf("%d waiters are said to starve, and %d do", l.starving, starving)
	}
	return waiting, nil
}
