package conformance

import (
	"cmp"
	"slices"
	"time"
)

// judgeAfterAck finds a delivery that was asked for after an ack had returned.
// A dead letter may be there twice, where a process died.
func judgeAfterAck(h *history) *verdict {
	for _, c := range h.courses {
		if c.sub.DeadLettersOf != "" && len(h.restarts) > 0 {
			continue
		}
		for _, d := range c.deliveries {
			if d.how != endedAcked || !d.sure {
				continue
			}
			for _, e := range c.events[d.event] {
				if d.by.ret.before(e.call) && !h.undone(d.by, e.ret) {
					return breach("ACK-1", []*op{d.op, d.by, e.op}, "%s was delivered to %s after it was acked", d.event, c.sub.Name)
				}
			}
		}
	}
	return nil
}

// judgeOverlap finds a delivery that began while another of the same event was
// still its member's.
func judgeOverlap(h *history) *verdict {
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			for _, e := range c.events[d.event] {
				if e == d || !d.ret.before(e.ret) || !e.ret.before(d.end) {
					continue
				}
				id := "SUB-5"
				if d.how == endedLost {
					id = "ACK-2"
				}
				return breach(id, []*op{d.op, d.by, e.op}, "%s was delivered to %s again while %s had it until %v", d.event, c.sub.Name, d.who, d.end.at)
			}
		}
	}
	return nil
}

// judgeAttempt finds an attempt that does not follow from the one before it.
func judgeAttempt(h *history) *verdict {
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			ds := c.events[d.event]
			i := slices.Index(ds, d)
			var before *delivery
			from, least, most := moment{}, 1, 1
			if i > 0 {
				before = ds[i-1]
				from = before.ret
				least, most = before.attempt, before.attempt+1
				switch {
				case before.how == endedRetried && before.sure, before.how == endedLost:
					least++
				case (before.how == endedReleased || before.how == endedReturned) && before.sure:
					most--
				}
			} else if p := h.byEvent[d.event]; len(p) > 0 {
				from = p[0].call
			}
			most += h.crashes(from, d.ret)
			if d.attempt < least || d.attempt > most {
				ops := []*op{d.op}
				if before != nil {
					ops = append(ops, before.op, before.by)
				}
				return breach("RCV-2", ops, "%s was delivered to %s with attempt %d, want %d to %d", d.event, c.sub.Name, d.attempt, least, most)
			}
		}
	}
	return nil
}

// judgeWindow finds more than MaxInFlight events that were out at a time: with
// a member, or waiting for a retry delay.
func judgeWindow(h *history) *verdict {
	type edge struct {
		moment
		d   *delivery
		out bool
	}
	for _, c := range h.courses {
		var edges []edge
		for _, d := range c.deliveries {
			end := d.end
			if d.how == endedRetried && d.sure {
				end = moment{at: max(end.at, d.by.call.at+d.by.after), n: end.n}
				if d.by.after > 0 {
					end.n = 0 // the first moment of that time
				}
			}
			if d.ret.before(end) {
				edges = append(edges, edge{d.ret, d, true}, edge{end, d, false})
			}
		}
		slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Or(a.compare(b.moment), boolCompare(a.out, b.out)) })
		out := make(map[string]*delivery)
		for _, e := range edges {
			switch {
			case !e.out && out[e.d.event] == e.d:
				delete(out, e.d.event)
			case e.out:
				out[e.d.event] = e.d
			}
			if len(out) <= c.sub.MaxInFlight {
				continue
			}
			var ops []*op
			for _, d := range out {
				ops = append(ops, d.op)
				if d.how == endedRetried {
					ops = append(ops, d.by)
				}
			}
			return breach("RCV-4", ops, "%d events of %s were out at %v, of %d at most", len(out), c.sub.Name, e.at, c.sub.MaxInFlight)
		}
	}
	return nil
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// judgeFairness finds a member that waited for all of a time in which the
// others were served again and again: more often than they may have taken in
// advance.
func judgeFairness(h *history) *verdict {
	for _, c := range h.courses {
		for _, r := range c.receives {
			others := c.between(r, h.terms.turn)
			if len(others) > 20+4*c.sub.MaxInFlight {
				return breach("SUB-5", []*op{r, others[0], others[len(others)-1]}, "%s received nothing in %d turns of other members of %s", r.who, len(others), c.sub.Name)
			}
		}
	}
	return nil
}

// between are the deliveries of other members in the time of a Receive, unless
// its member had one, too. Of those in one turn there is one: a goroutine that
// was woken may be overtaken as long as that.
func (c *course) between(r *op, turn time.Duration) (out []*op) {
	for _, d := range c.deliveries {
		switch {
		case d.ret.before(r.call) || !d.ret.before(r.ret):
		case d.who == r.who:
			return nil
		case r.call.before(d.call) && (len(out) == 0 || d.ret.at >= out[len(out)-1].ret.at+turn):
			out = append(out, d.op)
		}
	}
	return out
}

// judgeFencing finds a settle after its delivery's time that did not fail, and
// one within it that failed as if somebody else had settled for it.
func judgeFencing(h *history) *verdict {
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			for _, s := range d.settles {
				late := s.call.at >= d.until || d.by != nil && d.by.kind == opClose && d.by.ret.before(s.call)
				if late && s.result == resultOK {
					return breach("ACK-7", []*op{d.op, d.by, s}, "%s was settled after its deadline", d.event)
				}
				if late || s.class != "lost" || s.ret.at >= d.until || d.how != endedLost && d.how != endedOpen {
					continue
				}
				if l := c.lateSettle(d, s); l != nil {
					return breach("ACK-7", []*op{d.op, l, s}, "a late settle of %s ended another delivery of it", d.event)
				}
			}
		}
	}
	return nil
}

// lateSettle returns a settle of another delivery of d's event between d and s.
func (c *course) lateSettle(d *delivery, s *op) *op {
	for _, e := range c.events[d.event] {
		for _, l := range e.settles {
			if e != d && d.ret.before(l.call) && l.call.before(s.ret) && l.call.at >= e.until {
				return l
			}
		}
	}
	return nil
}
