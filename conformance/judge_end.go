package conformance

import "slices"

// judgeDeadLetter finds an event that died too early, too late, or not at all,
// and a dead letter that does not say what it has to.
func judgeDeadLetter(h *history) *verdict {
	for _, c := range h.courses {
		for _, o := range h.ops {
			if o.kind == opSubscribe && o.result == resultFailed && o.sub.DeadLettersOf == c.sub.Name {
				return breach("DLQ-4", []*op{c.joins[0], o}, "the dead letters of %s cannot be subscribed to", c.sub.Name)
			}
		}
		for _, d := range c.deliveries {
			if c.sub.MaxAttempts > 0 && d.attempt > c.sub.MaxAttempts {
				return breach("DLQ-1", []*op{d.op}, "%s was delivered to %s with attempt %d of %d at most", d.event, c.sub.Name, d.attempt, c.sub.MaxAttempts)
			}
			for _, e := range c.events[d.event] {
				if d.how == endedRejected && d.sure && d.by.ret.before(e.call) {
					return breach("ACK-4", []*op{d.op, d.by, e.op}, "%s was delivered to %s after it was rejected", d.event, c.sub.Name)
				}
			}
		}
		letters := h.letters(c)
		if letters == nil {
			continue
		}
		for _, d := range c.deliveries {
			if h.surelyDead(c, d.event) == d && len(letters.events[d.event]) == 0 && !h.over.before(d.end) {
				return breach("DLQ-1", []*op{d.op, d.by, letters.joins[0]}, "%s has died in %s, and is not among its dead letters", d.event, c.sub.Name)
			}
		}
		for _, l := range letters.deliveries {
			if v := h.letter(c, l); v != nil {
				return v
			}
		}
	}
	return nil
}

// letter returns what is wrong with a dead letter, or nil.
func (h *history) letter(c *course, l *delivery) *verdict {
	d := h.dies(c, l.event)
	if d == nil {
		ops := []*op{l.op}
		for _, d := range c.events[l.event] {
			ops = append(ops, d.op, d.by)
		}
		return breach("DLQ-1", ops, "%s is a dead letter of %s, and was neither rejected nor did it fail %d times", l.event, c.sub.Name, c.sub.MaxAttempts)
	}
	ops := []*op{d.op, d.by, l.op}
	if name, published := h.changed(l); name != "" && h.writer(l, name) == nil {
		return breach("DLQ-2", append(ops, published), "%s is a dead letter with %s %q, and was published with %q", l.event, name, l.content[name], published.content[name])
	}
	a := l.letter
	switch {
	case a == nil:
		return breach("DLQ-2", ops, "%s is a dead letter without annotations", l.event)
	case a.Subscription != c.sub.Name:
		return breach("DLQ-2", ops, "%s died in %s, and its dead letter names %q", l.event, c.sub.Name, a.Subscription)
	case a.Stored.IsZero() || a.Died.IsZero():
		return breach("DLQ-2", ops, "%s is a dead letter without times", l.event)
	case a.Sequence != d.sequence && a.Sequence != 0 && d.sequence != 0:
		return breach("DLQ-2", ops, "%s has sequence %d, and its dead letter says %d", l.event, d.sequence, a.Sequence)
	}
	if h.surelyDead(c, l.event) != d || len(h.restarts) > 0 {
		return nil // more may have happened than anybody saw
	}
	switch {
	case a.Attempts != d.attempt:
		return breach("DLQ-2", ops, "%s died with attempt %d, and its dead letter says %d", l.event, d.attempt, a.Attempts)
	case d.how == endedRejected && a.Reason != d.by.reason:
		return breach("DLQ-2", ops, "%s was rejected for %q, and its dead letter says %q", l.event, d.by.reason, a.Reason)
	}
	return nil
}

// judgeShutdown finds a Close that failed, a Receive that outlived its source,
// and an event that was with a member when it closed, and came to nobody else.
func judgeShutdown(h *history) *verdict {
	for _, o := range h.ops {
		if o.kind != opClose {
			continue
		}
		if o.result == resultFailed {
			return breach("CLS-1", []*op{o}, "Close failed")
		}
		for _, c := range h.courses {
			if o.who != "broker" && o.sub.Name != c.sub.Name {
				continue
			}
			if v := h.outlives(c, o); v != nil {
				return v
			}
		}
	}
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			if d.how != endedReturned || !d.sure || !d.by.ret.before(h.over) {
				continue
			}
			if ds := c.events[d.event]; ds[len(ds)-1] == d && h.over != never {
				return breach("CLS-2", []*op{d.op, d.by}, "%s had %s when it closed, and it came to no other member of %s", d.who, d.event, c.sub.Name)
			}
			if v := h.overdue(c, d, d.by.ret.at, "CLS-1", "was given back by Close"); v != nil {
				return v
			}
		}
	}
	return nil
}

// outlives returns a breach if a Receive took something after its source was
// closed, or did not end.
func (h *history) outlives(c *course, closed *op) *verdict {
	for _, r := range c.receives {
		if closed.result != resultOK || closed.who != "broker" && closed.who != r.who {
			continue
		}
		switch {
		case closed.ret.before(r.call) && r.delivery > 0:
			return breach("CLS-1", []*op{closed, r}, "%s received from a source that was closed", r.who)
		case r.ret.at > max(closed.ret.at, r.call.at)+h.terms.prompt:
			return breach("RCV-1", []*op{closed, r}, "a Receive of %s did not end with its source", r.who)
		}
	}
	return nil
}

// judgeContext finds a call that outlived its context, or took its time
// without one, and a Receive that ended for another reason than it may.
func judgeContext(h *history) *verdict {
	for _, o := range h.ops {
		late := o.limit + h.terms.prompt
		switch {
		case o.limit > 0 && o.ret.at > max(late, o.call.at+h.terms.prompt):
			id := "RCV-1"
			if o.kind == opPublish {
				id = "PUB-6"
			}
			return breach(id, []*op{o}, "the context of a %s ended at %v, and it had not returned at %v", o.kind, o.limit, late)
		case o.kind == opPublish && o.limit > 0 && o.limit <= o.call.at && o.result == resultOK:
			return breach("PUB-6", []*op{o}, "a Publish whose context had ended returned nil")
		case o.kind == opClose && o.ret.at > o.call.at+h.terms.prompt:
			return breach("CLS-1", []*op{o}, "a Close took more than %v", h.terms.prompt)
		case o.kind == opReceive && o.result == resultFailed && !slices.Contains([]string{"context", "closed"}, o.class):
			return breach("RCV-1", []*op{o}, "a Receive returned neither the error of its context nor ErrClosed")
		}
	}
	return nil
}
