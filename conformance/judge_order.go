package conformance

import "slices"

// judgeOrder finds events of one publisher that were delivered in another order
// than they were stored in, where order is promised, and an event that was
// delivered in strict order before the one before it was done with.
func judgeOrder(h *history) *verdict {
	for _, c := range h.courses {
		if c.sub.DeadLettersOf != "" {
			continue
		}
		if v := h.sequence(c); v != nil {
			return v
		}
		if c.sub.MaxInFlight != 1 {
			continue
		}
		for i, d := range c.deliveries {
			if i == 0 {
				continue
			}
			// What a restart takes back, it may take back out of turn.
			if before := c.deliveries[i-1]; before.event != d.event && !h.passed(c, before, d) && (h.terms.Has(ConfirmedAck) || h.restarted(before.ret, d.ret) == nil) {
				return breach("RCV-3", []*op{before.op, before.by, d.op}, "%s was delivered to %s, whose MaxInFlight is 1, before %s was acked or dead", d.event, c.sub.Name, before.event)
			}
		}
	}
	return nil
}

// passed reports whether a delivery was its event's last, when another event
// was delivered: it was acked, or the event may have become a dead letter.
func (h *history) passed(c *course, before, d *delivery) bool {
	switch last := h.dies(c, before.event); {
	case before.how == endedAcked:
		return before.end.before(d.ret)
	case last != nil:
		return last.end.before(d.ret)
	}
	return false
}

// sequence compares the first deliveries of each publisher's events.
func (h *history) sequence(c *course) *verdict {
	until := never
	if c.sub.MaxInFlight != 1 {
		until = c.alone()
	}
	last := make(map[string]*op) // delivery of what each publisher published last
	order := make(map[string]*op)
	for _, p := range h.published {
		ds := c.events[p.event]
		if len(ds) == 0 || len(h.byEvent[p.event]) > 1 || !h.whole(p) || until.before(ds[0].ret) {
			continue
		}
		d := ds[0]
		// Deliveries of Receives at the same time have no order.
		if l := last[p.who]; l != nil && d.ret.before(l.call) && d.attempt == 1 {
			return breach("RCV-3", []*op{order[p.who], p, d.op, l}, "%s was published before %s, and delivered to %s after it", order[p.who].event, p.event, c.sub.Name)
		}
		last[p.who], order[p.who] = d.op, p
	}
	return nil
}

// whole reports whether a call had no failure that may have left its events,
// or those of the calls around it, out of order [PUB-2].
func (h *history) whole(p *op) bool {
	return !slices.ContainsFunc(h.byCall[p.batch], func(q *op) bool { return q.result != resultOK })
}

// alone is until when a subscription had one member since its creation, and
// nothing was released: until then first attempts come in order.
func (c *course) alone() moment {
	until := never
	if len(c.joins) > 1 {
		until = c.joins[1].call
	}
	for _, s := range c.settles {
		if s.kind == opRelease && s.call.before(until) {
			until = s.call
		}
	}
	for _, s := range c.closes {
		if s.call.before(until) {
			until = s.call
		}
	}
	return until
}

// judgeStart finds an event from before the start of a subscription, a first
// one that was left out, and one that came again when a member joined.
func judgeStart(h *history) *verdict {
	for _, c := range h.courses {
		if c.sub.DeadLettersOf != "" {
			continue
		}
		for _, d := range c.deliveries {
			for _, p := range h.byEvent[d.event] {
				if c.sub.Start.New() && p.result == resultOK && p.ret.before(c.joins[0].call) {
					return breach("SUB-2", []*op{p, c.joins[0], d.op}, "%s was delivered to %s, which starts after it", d.event, c.sub.Name)
				}
			}
			if d.how != endedAcked || !d.sure {
				continue
			}
			for _, e := range c.events[d.event] {
				for _, j := range c.joins[1:] {
					if d.by.ret.before(j.call) && j.ret.before(e.call) && !h.undone(d.by, e.ret) {
						return breach("SUB-3", []*op{d.op, d.by, j, e.op}, "%s was delivered to %s again, which had acked it before %s joined", d.event, c.sub.Name, j.who)
					}
				}
			}
		}
		for _, p := range h.published {
			if !h.wants(c, p) {
				continue
			}
			if !c.seen(h.causes(p)) && len(c.deliveries) > 0 {
				return breach("SUB-2", []*op{p, c.joins[0], c.deliveries[0].op}, "%s is the first event for %s, and was not delivered", p.event, c.sub.Name)
			}
			break
		}
	}
	return nil
}
