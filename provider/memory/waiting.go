package memory

import (
	"sync/atomic"
	"time"
)

// A waitingList has the consumers of a log with a Receive that waits, in the order
// of their numbers. It finds those that an event is for without asking each: who was
// asked about a type, and did not want it, has a number up to what asked says, and
// is not asked again. So a Publish does not pay for subscriptions to other types,
// however many of them wait.
type waitingList struct {
	first, last *consumer
	number      uint64            // the highest that was given
	asked       map[string]uint64 // by type
	some        atomic.Bool       // the list is not empty; for Publish, which has no lock on it
}

// mostAsked is how many types are remembered. With more, those that wait are asked
// again now and then.
const mostAsked = 1024

// A place is a consumer's in a waitingList.
type place struct {
	number        uint64 // 0: it is not listed
	before, after *consumer
}

// push puts a consumer at the end, or moves it there: it has not been asked about
// anything.
func (l *waitingList) push(c *consumer) {
	l.unlink(c) // some stays: Publish must not take the list for empty meanwhile
	l.number++
	c.waiting = place{number: l.number, before: l.last}
	if l.last == nil {
		l.first = c
	} else {
		l.last.waiting.after = c
	}
	l.last = c
	l.some.Store(true)
}

// remove takes a consumer off, if it is listed.
func (l *waitingList) remove(c *consumer) {
	l.unlink(c)
	l.some.Store(l.last != nil)
}

func (l *waitingList) unlink(c *consumer) {
	at := c.waiting
	if at.number == 0 {
		return
	}
	if at.before == nil {
		l.first = at.after
	} else {
		at.before.waiting.after = at.after
	}
	if at.after == nil {
		l.last = at.before
	} else {
		at.after.waiting.before = at.before
	}
	c.waiting = place{}
}

// wake kicks the consumers that wait for an event of that type. One that wants it
// and waits still, with another Receive or for want of room, is asked again.
func (l *waitingList) wake(typ string, now time.Time) {
	if l.last == nil {
		return
	}
	asked, last := l.asked[typ], l.number
	if asked == last {
		return
	}
	var next *consumer
	for c := l.last; c != nil && c.waiting.number > asked; c = next {
		next = c.waiting.before
		if !c.match.Match(typ) {
			continue
		}
		if c.kick(now); c.waiting.number != 0 {
			l.push(c)
		}
	}
	if l.asked == nil || len(l.asked) == mostAsked {
		l.asked = make(map[string]uint64)
	}
	l.asked[typ] = last
}
