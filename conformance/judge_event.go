package conformance

import (
	"maps"
	"slices"
	"strings"
)

// judgeFidelity finds an event that arrived with another value than it was
// published with. What somebody wrote is for judgeIsolation to find, and a dead
// letter for judgeDeadLetter.
func judgeFidelity(h *history) *verdict {
	for _, c := range h.courses {
		if c.sub.DeadLettersOf != "" {
			continue
		}
		for _, d := range c.deliveries {
			if name, published := h.changed(d); name != "" && h.writer(d, name) == nil {
				return breach("EVT-3", []*op{published, d.op}, "%s was published with %s %q, and delivered with %q", d.event, name, published.content[name], d.content[name])
			}
		}
	}
	return nil
}

// judgeIsolation finds what somebody wrote to an event of theirs in a delivery
// to somebody else.
func judgeIsolation(h *history) *verdict {
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			name, published := h.changed(d)
			if w := h.writer(d, name); w != nil {
				id := "EVT-5"
				if w.who == published.who {
					id = "EVT-4"
				}
				return breach(id, []*op{published, w, d.op}, "%s was delivered with %s %q, which %s wrote to an event of its own; it was published with %q", d.event, name, d.content[name], w.who, published.content[name])
			}
		}
	}
	return nil
}

// changed returns the first value in which a delivery differs from what was
// published, preferably one that somebody wrote, and "" if there is none.
func (h *history) changed(d *delivery) (name string, published *op) {
	of := h.byEvent[d.event]
	if len(of) == 0 || maps.Equal(of[0].content, d.content) {
		return "", nil
	}
	all := maps.Clone(of[0].content)
	maps.Copy(all, d.content)
	for _, n := range slices.Sorted(maps.Keys(all)) {
		was, had := of[0].content[n]
		is, has := d.content[n]
		if (was != is || had != has) && (name == "" || h.writer(d, n) != nil) {
			name = n
		}
	}
	return name, of[0]
}

// writer returns who wrote the value that a delivery has, or nil.
func (h *history) writer(d *delivery, name string) *op {
	for _, w := range h.writes[d.event] {
		if v, ok := w.content[name]; ok && name != "" && v == d.content[name] && w.call.before(d.ret) {
			return w
		}
	}
	return nil
}

// judgeFilter finds a delivery of a type that the subscription does not select.
func judgeFilter(h *history) *verdict {
	for _, c := range h.courses {
		for _, d := range c.deliveries {
			for _, p := range h.byEvent[d.event] {
				if !selects(c.sub, p.typ) {
					return breach("SUB-8", []*op{c.joins[0], p, d.op}, "%s of type %s was delivered to %s, which selects %v", d.event, p.typ, c.sub.Name, c.sub.Types)
				}
			}
		}
	}
	return nil
}

// judgeNames finds two subscriptions of similar names that are one to the
// broker: it refuses the settings of the second as a conflict, or what one of
// them is done with does not come to the other.
func judgeNames(h *history) *verdict {
	for _, o := range h.ops {
		if o.kind != opSubscribe || o.class != "conflict" {
			continue
		}
		for _, c := range h.courses {
			if c.sub.Name != o.sub.Name && similar(c.sub.Name, o.sub.Name) {
				return breach("SUB-7", []*op{c.joins[0], o}, "%s and %s are two subscriptions, and were taken for one", c.sub.Name, o.sub.Name)
			}
		}
	}
	for _, a := range h.courses {
		for _, b := range h.courses {
			if a == b || !similar(a.sub.Name, b.sub.Name) {
				continue
			}
			for _, p := range h.unfinished(b) {
				if _, done := h.finished(a, p.event); done && h.wants(a, p) && !b.seen(h.causes(p)) {
					d := a.events[p.event][0]
					return breach("SUB-7", []*op{a.joins[0], b.joins[0], p, d.op, d.by}, "%s was delivered to %s and not to %s, which is another subscription", p.event, a.sub.Name, b.sub.Name)
				}
			}
		}
	}
	return nil
}

var unpunctuated = strings.NewReplacer("-", "", "_", "")

func similar(a, b string) bool {
	return strings.EqualFold(unpunctuated.Replace(a), unpunctuated.Replace(b))
}
