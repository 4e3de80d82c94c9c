package conformance

import (
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// A course is what befell one subscription.
type course struct {
	sub        messaging.Subscription // with defaults filled in
	joins      []*op                  // members, as they were opened
	receives   []*op                  // all calls, also those that received nothing
	closes     []*op
	settles    []*op
	deliveries []*delivery // in the order in which Receive returned them
	events     map[string][]*delivery
}

// A delivery is a receive, and how it ended.
type delivery struct {
	*op
	settles []*op
	until   time.Duration // the deadline, extensions included
	end     moment        // no later than this it was with its member no more
	how     outcome
	by      *op  // the settle, close or restart that ended it, if any
	sure    bool // that it did end so
}

type outcome string

const (
	endedOpen     outcome = "open" // when the history ended
	endedAcked    outcome = "acked"
	endedRetried  outcome = "retried"
	endedRejected outcome = "rejected"
	endedReleased outcome = "released"
	endedReturned outcome = "returned" // by Close
	endedLost     outcome = "lost"     // its deadline passed
	endedDied     outcome = "died"     // with its member's process
)

var outcomes = map[kind]outcome{opAck: endedAcked, opRetry: endedRetried, opReject: endedRejected, opRelease: endedReleased}

// failed reports whether a delivery may have failed.
func (d *delivery) failed() bool {
	return d.how == endedRetried || d.how == endedLost || d.how == endedDied
}

// follow works out the course of each subscription.
func (h *history) follow() {
	courses := make(map[string]*course)
	deliveries := make(map[int]*delivery)
	for _, o := range h.ops {
		if o.kind == opSubscribe && o.result == resultOK && courses[o.sub.Name] == nil {
			sub, err := o.sub.Normalize()
			if err != nil {
				sub = o.sub
			}
			c := &course{sub: sub, events: make(map[string][]*delivery)}
			courses[sub.Name] = c
			h.courses = append(h.courses, c)
		}
		c := courses[o.sub.Name]
		if c == nil {
			continue
		}
		switch o.kind {
		case opSubscribe:
			if o.result == resultOK {
				c.joins = append(c.joins, o)
			}
		case opReceive:
			c.receives = append(c.receives, o)
			if o.delivery > 0 {
				d := &delivery{op: o, until: o.deadline}
				deliveries[o.delivery] = d
				c.deliveries = append(c.deliveries, d)
			}
		case opClose:
			c.closes = append(c.closes, o)
		case opAck, opRetry, opReject, opRelease, opExtend:
			c.settles = append(c.settles, o)
			if d := deliveries[o.delivery]; d != nil {
				d.settles = append(d.settles, o)
			}
		}
	}
	for _, c := range h.courses {
		slices.SortStableFunc(c.deliveries, func(a, b *delivery) int { return a.ret.compare(b.ret) })
		c.deliveries = slices.DeleteFunc(c.deliveries, func(d *delivery) bool {
			h.conclude(c, d)
			// Taken and given back while the member closed: another may have
			// had it before this Receive returned.
			return d.how == endedReturned && !d.sure && d.by.call.before(d.ret)
		})
		for _, d := range c.deliveries {
			c.events[d.event] = append(c.events[d.event], d)
		}
	}
}

// conclude works out how a delivery ended.
func (h *history) conclude(c *course, d *delivery) {
	for _, s := range d.settles {
		if s.kind == opExtend && s.result == resultOK {
			d.until = s.deadline
		}
	}
	d.how, d.end, d.sure = endedLost, moment{at: d.until}, true
	stop := c.closed(d.who, d.call)
	if r := slices.IndexFunc(h.restarts, func(r *op) bool { return d.call.before(r.ret) }); r >= 0 && (stop == nil || h.restarts[r].call.before(stop.call)) {
		stop = h.restarts[r]
	}
	if stop != nil && stop.call.before(d.end) {
		d.how, d.end, d.by, d.sure = endedReturned, stop.call, stop, d.ret.before(stop.call) && stop.ret.before(d.end)
		if stop.kind == opRestart {
			d.how, d.sure = endedDied, false
		}
	}
	for _, s := range d.settles {
		// A settle and a Close that overlap: either may have come first.
		if how := outcomes[s.kind]; how != "" && s.result != resultFailed && s.call.at < d.until && (stop == nil || s.call.before(stop.ret)) {
			d.how, d.by, d.sure = how, s, s.result == resultOK
			if s.call.before(d.end) {
				d.end = s.call
			}
			if d.sure {
				break
			}
		}
	}
	if d.how == endedLost && h.over.before(d.end) {
		d.how = endedOpen
	}
}

// closed returns the first Close of a member that ended after a moment, or nil.
func (c *course) closed(member string, after moment) *op {
	for _, o := range c.closes {
		if o.who == member && after.before(o.ret) {
			return o
		}
	}
	return nil
}

// seen reports whether any of the publications was delivered.
func (c *course) seen(published []*op) bool {
	return slices.ContainsFunc(published, func(p *op) bool { return len(c.events[p.event]) > 0 })
}

// dies returns the delivery with which an event may have become a dead letter,
// or nil. For each restart there may be an attempt that nobody saw.
func (h *history) dies(c *course, event string) *delivery {
	for _, d := range c.events[event] {
		if d.how == endedRejected {
			return d
		}
		if c.sub.MaxAttempts > 0 && d.failed() && d.attempt+h.crashes(moment{}, h.over) >= c.sub.MaxAttempts {
			return d
		}
	}
	return nil
}

// finished returns when an event was done with, as far as anybody can know, and
// whether it was.
func (h *history) finished(c *course, event string) (moment, bool) {
	for _, d := range slices.Backward(c.events[event]) {
		if d.how == endedAcked {
			return d.by.ret, true
		}
	}
	if d := h.dies(c, event); d != nil {
		return d.end, true
	}
	return moment{}, false
}

// unfinished are the publications of which a subscription has not finished any
// that caused them.
func (h *history) unfinished(c *course) (out []*op) {
	for _, p := range h.published {
		if h.wants(c, p) && !slices.ContainsFunc(h.causes(p), func(q *op) bool { _, done := h.finished(c, q.event); return done }) {
			out = append(out, p)
		}
	}
	return out
}

// letters returns the course of a subscription's dead letters, or nil.
func (h *history) letters(c *course) *course {
	for _, l := range h.courses {
		if l.sub.DeadLettersOf == c.sub.Name {
			return l
		}
	}
	return nil
}

// unread are the events that surely became dead letters and were not acked as
// such.
func (h *history) unread(c *course) (out []*delivery) {
	letters := h.letters(c)
	if letters == nil {
		return nil
	}
	for event := range c.events {
		if d := h.surelyDead(c, event); d != nil {
			if _, done := h.finished(letters, event); !done {
				out = append(out, d)
			}
		}
	}
	slices.SortFunc(out, func(a, b *delivery) int { return a.ret.compare(b.ret) })
	return out
}

// surelyDead returns the delivery with which an event must have become a dead
// letter, or nil.
func (h *history) surelyDead(c *course, event string) *delivery {
	for _, d := range c.events[event] {
		last := c.sub.MaxAttempts > 0 && d.attempt >= c.sub.MaxAttempts && (d.how == endedRetried || d.how == endedLost)
		if d.sure && (d.how == endedRejected || last) {
			return d
		}
	}
	return nil
}

// waited returns a Receive that waited from one time until after another, if
// each member that was open meanwhile had one: whatever could be delivered then,
// they would have been.
func (h *history) waited(c *course, from, until time.Duration) *op {
	var first *op
	for _, j := range c.joins {
		if j.call.at > until {
			continue
		}
		if stop := c.closed(j.who, j.ret); stop != nil && stop.call.at <= from {
			continue
		}
		if h.restarted(j.ret, moment{at: from}) != nil {
			continue
		}
		i := slices.IndexFunc(c.receives, func(r *op) bool {
			return r.who == j.who && r.call.at <= from && r.ret.at > until
		})
		if i < 0 {
			return nil
		}
		if first == nil {
			first = c.receives[i]
		}
	}
	return first
}
