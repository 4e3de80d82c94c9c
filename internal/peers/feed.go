package main

import (
	"strconv"

	"github.com/catchment-events/catchment/event"
)

// A feed hands out events that are new: each gets its id when it is taken, and
// is warm in the processor's cache, as one is that a service has just made.
//
// There are fewer events than it hands out. One comes again with another id
// after ringSize others, which is more than any system keeps of the caller's.
type feed struct {
	ring []event.Event
	next int // in ring
	ids  []string
}

const ringSize = 4096

// ids never come twice in a run of the program.
var ids int

// newFeed returns a feed of n events.
func newFeed(n int) *feed {
	f := &feed{ring: make([]event.Event, min(n, ringSize)), ids: make([]string, n)}
	for i := range f.ring {
		f.ring[i] = newEvent()
	}
	for i := range f.ids {
		ids++
		f.ids[i] = "order-" + strconv.Itoa(ids)
	}
	return f
}

// left is how many events have not been taken.
func (f *feed) left() int { return len(f.ids) }

// take returns the next n events, or what is left; ringSize at most.
func (f *feed) take(n int) []event.Event {
	n = min(n, len(f.ids), len(f.ring))
	if f.next+n > len(f.ring) {
		f.next = 0
	}
	es := f.ring[f.next : f.next+n]
	f.next += n
	for i := range es {
		es[i].SetID(f.ids[i])
	}
	f.ids = f.ids[n:]
	return es
}

// split deals what is left to so many feeds, for a goroutine each.
func (f *feed) split(parts int) []*feed {
	out := make([]*feed, parts)
	for i := range out {
		part := func(n int) (from, to int) { return i * n / parts, (i + 1) * n / parts }
		a, b := part(len(f.ring))
		c, d := part(len(f.ids))
		out[i] = &feed{ring: f.ring[a:b], ids: f.ids[c:d]}
	}
	return out
}
