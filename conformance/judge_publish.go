package conformance

import "slices"

// judgeLost finds an event that was published, and that a subscription neither
// acked nor gave up on.
func judgeLost(h *history) *verdict {
	for _, c := range h.courses {
		if left := h.unfinished(c); len(left) > 0 {
			ops := []*op{c.joins[0]}
			for _, p := range h.causes(left[0]) {
				ops = append(ops, h.story(c, p)...)
			}
			return breach("PUB-1", ops, "%s was stored, and subscription %s was not done with it when nothing more was waited for", left[0].event, c.sub.Name)
		}
	}
	return nil
}

// judgeUnexpected finds a delivery of what was not published, or not yet.
func judgeUnexpected(h *history) *verdict {
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			published := h.byEvent[d.event]
			if len(published) == 0 || d.ret.before(published[0].call) {
				return breach("EVT-3", append(slices.Clone(published), d.op), "%s was delivered, and not published before", d.event)
			}
		}
	}
	return nil
}

// judgeAborted finds an event that was delivered although each Publish of it
// said for certain that it is not stored.
func judgeAborted(h *history) *verdict {
	return h.stored("PUB-6", "Publish said that it is not stored", func(*op) bool { return true })
}

// judgeBatch finds an event that was delivered although its call was refused
// for another of its events, and a call that was refused in part.
func judgeBatch(h *history) *verdict {
	refused := make(map[int]bool)
	for _, p := range h.published {
		if p.class != "invalid" || len(h.byCall[p.batch]) == 1 {
			continue
		}
		refused[p.batch] = true
		for _, q := range h.byCall[p.batch] {
			if q.result != resultFailed {
				return breach("PUB-5", []*op{p, q}, "%s was refused, and its call took %s", p.event, q.event)
			}
		}
	}
	return h.stored("PUB-5", "its call was refused", func(p *op) bool { return refused[p.batch] })
}

// stored returns a breach if an event was delivered of which each Publish has
// failed, one of them in a call that counts.
func (h *history) stored(id, why string, counts func(*op) bool) *verdict {
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			published := h.byEvent[d.event]
			succeeded := slices.ContainsFunc(published, func(p *op) bool { return p.result != resultFailed })
			if !succeeded && slices.ContainsFunc(published, counts) {
				return breach(id, append(slices.Clone(published), d.op), "%s was delivered, and %s", d.event, why)
			}
		}
	}
	return nil
}

// judgeDedup finds a duplicate that was stored, and an event that was taken for
// one that is none.
func judgeDedup(h *history) *verdict {
	for _, p := range h.published {
		for _, q := range h.byID[p.id] {
			if q.event == p.event || !q.ret.before(p.call) && (q.batch != p.batch || q.index > p.index) {
				continue
			}
			// The earliest that q can be stored, and the latest that p can be.
			if p.ret.at-q.call.at < h.terms.window {
				if d, e := h.delivered(q.event), h.delivered(p.event); d != nil && e != nil {
					return breach("PUB-3", []*op{q, p, d, e}, "%s and %s have the same source and id, and both were stored", q.event, p.event)
				}
				if e := h.delivered(p.event); e != nil && q.result == resultOK && len(h.causes(q)) == 1 {
					return breach("PUB-3", []*op{q, p, e}, "%s is a duplicate of %s, and was stored", p.event, q.event)
				}
			}
		}
		if p.result != resultOK || len(h.causes(p)) > 1 || h.delivered(p.event) != nil {
			continue
		}
		wanted := slices.ContainsFunc(h.courses, func(c *course) bool { return h.wants(c, p) })
		for _, q := range h.published {
			same := q.content["id"] == p.content["id"] && q.event != p.event && q.call.before(p.call)
			if d := h.delivered(q.event); wanted && same && d != nil {
				if q.id != p.id {
					return breach("PUB-3", []*op{q, p, d}, "%s has the id of %s and another source, and was not stored", p.event, q.event)
				}
				return breach("PUB-4", []*op{q, p, d}, "%s was published %v after %s, and was not stored", p.event, p.call.at-q.ret.at, q.event)
			}
		}
	}
	return nil
}

// delivered returns the first delivery of an event, to anybody, or nil.
func (h *history) delivered(event string) *op {
	for _, c := range h.courses {
		if ds := c.events[event]; len(ds) > 0 {
			return ds[0].op
		}
	}
	return nil
}
