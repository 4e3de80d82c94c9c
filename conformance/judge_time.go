package conformance

import (
	"slices"
	"time"
)

// judgeLiveness finds an event that was settled too late after faults had
// stopped, and one that was due while each member waited, and did not come.
func judgeLiveness(h *history) *verdict {
	for _, c := range h.courses {
		if v := h.unsettled(c); v != nil {
			return v
		}
		if v := h.unheard(c); v != nil {
			return v
		}
		for _, d := range c.deliveries {
			var due time.Duration
			id, what := "ACK-2", "was lost"
			switch {
			case !d.sure:
				continue
			case d.how == endedLost:
				due = d.until
			case d.how == endedReleased:
				due, id, what = d.by.ret.at, "ACK-9", "was released"
			default:
				continue
			}
			if v := h.overdue(c, d, due, id, what); v != nil {
				return v
			}
		}
	}
	return nil
}

// unsettled finds an event that was not settled in bounded time. What was
// published later has its time from then on.
func (h *history) unsettled(c *course) *verdict {
	if h.calm == (moment{}) {
		return nil
	}
	for _, p := range h.published {
		if !h.wants(c, p) {
			continue
		}
		last := max(h.calm.at, p.ret.at) + h.terms.bound
		settled := slices.ContainsFunc(h.causes(p), func(q *op) bool {
			end, done := h.finished(c, q.event)
			return done && end.at <= last
		})
		if !settled {
			return breach("PUB-1", h.story(c, p), "%s was not settled in %s until %v, which is %v after faults had stopped", p.event, c.sub.Name, last, last-h.calm.at)
		}
	}
	return nil
}

// story is what befell an event in a subscription.
func (h *history) story(c *course, p *op) []*op {
	ops := []*op{c.joins[0], p}
	for _, d := range c.events[p.event] {
		ops = append(ops, d.op, d.by)
	}
	return ops
}

// unheard finds an event that did not come although each member waited, and
// there was room for it, whatever else backed off at the time.
func (h *history) unheard(c *course) *verdict {
	if c.sub.MaxInFlight <= len(h.published) {
		return nil
	}
	for _, p := range h.published {
		late := p.ret.at + h.terms.slack + h.terms.prompt
		if !h.wants(c, p) || late >= h.over.at || slices.ContainsFunc(h.causes(p), func(q *op) bool {
			ds := c.events[q.event]
			return len(ds) > 0 && ds[0].ret.at <= late
		}) {
			continue
		}
		if r := h.waited(c, p.ret.at, late); r != nil && c.joins[0].ret.before(p.ret) {
			return breach("PUB-1", append(h.story(c, p), r), "%s was published while members of %s waited, and not delivered until %v", p.event, c.sub.Name, late)
		}
	}
	return nil
}

// overdue returns a breach if the event of d was due again while each member
// waited, and did not come.
func (h *history) overdue(c *course, d *delivery, due time.Duration, id, what string) *verdict {
	late := due + h.terms.slack + h.terms.prompt
	last := c.sub.MaxAttempts > 0 && d.failed() && d.attempt >= c.sub.MaxAttempts
	if last || late >= h.over.at || h.restarted(d.ret, moment{at: late}) != nil {
		return nil
	}
	ds := c.events[d.event]
	i := slices.Index(ds, d)
	var next *op
	if i+1 < len(ds) {
		next = ds[i+1].op
		if next.ret.at <= late {
			return nil
		}
	}
	if r := h.waited(c, due, late); r != nil {
		return breach(id, []*op{d.op, d.by, r, next}, "%s %s, was due again in %s at %v, and did not come until %v", d.event, what, c.sub.Name, due, late)
	}
	return nil
}

// judgeBackoff finds a retried event that came before its delay had passed, or
// long after it. A restart may cut a second off.
func judgeBackoff(h *history) *verdict {
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			if d.how != endedRetried || !d.sure {
				continue
			}
			due := d.by.call.at + d.by.after
			ds := c.events[d.event]
			if i := slices.Index(ds, d); i+1 < len(ds) {
				next := ds[i+1]
				if h.restarted(d.by.call, next.ret) != nil {
					due -= time.Second
				}
				if next.ret.at < due {
					return breach("ACK-3", []*op{d.op, d.by, next.op}, "%s was retried after %v, and came %v before that", d.event, d.by.after, due-next.ret.at)
				}
			}
			if v := h.overdue(c, d, d.by.ret.at+d.by.after, "ACK-3", "was retried"); v != nil {
				return v
			}
		}
	}
	return nil
}
