package ledger_test

import (
	"maps"
	"sync"

	"github.com/catchment-events/catchment/event"
)

// facts are what clients of a broker know for certain.
type facts struct {
	mu           *sync.Mutex
	acknowledged map[string]string // types of events whose Publish returned, by id
	subs         map[string]*subFacts
}

// subFacts are those of a subscription.
type subFacts struct {
	mu     *sync.Mutex
	events map[string]eventFacts // by id
	sought int                   // Seeks that have returned
}

// eventFacts are those of an event in a subscription. What may be was asked for.
type eventFacts struct {
	delivered            int
	released, mayRelease int
	acked, mayAck        bool
	rejected, mayReject  bool
	buried, mayBury      bool // the dead letter was acked
	seeks                int  // that had begun when the last ack did
}

func newFacts() *facts {
	f := &facts{mu: new(sync.Mutex), acknowledged: make(map[string]string), subs: make(map[string]*subFacts)}
	for _, sub := range crashSubs {
		f.subs[sub.Name] = &subFacts{mu: f.mu, events: make(map[string]eventFacts)}
	}
	return f
}

func (f *facts) of(sub string) *subFacts { return f.subs[sub] }

func (f *facts) published(events []event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		f.acknowledged[e.ID()] = e.Type()
	}
}

func (f *subFacts) note(id string, do func(*eventFacts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.events[id]
	do(&e)
	f.events[id] = e
}

func (f *facts) clone() *facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := newFacts()
	c.acknowledged = maps.Clone(f.acknowledged)
	for name, s := range f.subs {
		c.subs[name].events, c.subs[name].sought = maps.Clone(s.events), s.sought
	}
	return c
}
