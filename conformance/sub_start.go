package conformance

import (
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

func sub2First(e *env) {
	b := e.open()
	events := e.events(5, "sub.first")
	e.publish(b, events...)
	src := e.subscribe(b, e.sub())
	e.accept(src, events...)
	e.fence(b, src, "sub.first")
	other := e.events(2, "sub.other")
	e.publish(b, other...)
	e.accept(e.subscribe(b, e.sub("sub.other")), other...)
}

func sub2New(e *env) {
	b := e.open()
	sub := e.sub()
	sub.Start = messaging.StartNew()
	empty := e.subscribe(b, sub) // of a log without events
	first := e.event("sub.new")
	e.publish(b, first)
	for range 10 {
		sub := e.sub()
		sub.Start = messaging.StartNew()
		src := e.subscribe(b, sub)
		next := e.event("sub.new")
		e.publish(b, next)
		e.accept(src, next)
		e.fence(b, src, "sub.new")
	}
	filtered := e.sub("sub.new")
	filtered.Start = messaging.StartNew()
	src := e.subscribe(b, filtered)
	e.publish(b, e.event("sub.other"))
	e.fence(b, src, "sub.new")
	e.accept(empty, first)
}

// Under load a Publish that runs while Subscribe does may go either way. All
// others may not.
func sub2NewUnderLoad(e *env) {
	b := e.open()
	type published struct {
		event event.Event
		began int // how many subscriptions had been made when it began
		ended int // how many had been begun when it had returned
	}
	var mu sync.Mutex
	var made, begun int
	var log []published
	stop := make(chan struct{})
	var waits []func()
	for range 3 {
		waits = append(waits, e.async(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				p := published{event: e.event("sub.load")}
				mu.Lock()
				p.began = made
				mu.Unlock()
				e.publish(b, p.event)
				mu.Lock()
				p.ended = begun
				log = append(log, p)
				mu.Unlock()
				if n%8 == 7 {
					e.tick()
				}
			}
		}))
	}
	var sources []messaging.Source
	for range 5 {
		e.tick()
		sub := e.sub()
		sub.Start = messaging.StartNew()
		mu.Lock()
		begun++
		mu.Unlock()
		sources = append(sources, e.subscribe(b, sub))
		mu.Lock()
		made++
		mu.Unlock()
	}
	e.tick()
	close(stop)
	for _, wait := range waits {
		wait()
	}
	marker := e.event("sub.load")
	e.publish(b, marker)
	for i, src := range sources {
		got := make(map[string]bool)
		for {
			d := e.receive(src)
			e.ack(d)
			if d.Value.ID() == marker.ID() {
				break
			}
			got[d.Value.ID()] = true
		}
		for _, p := range log {
			switch {
			case p.ended <= i && got[p.event.ID()]:
				e.failf("StartNew: event %s arrived, whose Publish had returned before the call", p.event.ID())
			case p.began > i && !got[p.event.ID()]:
				e.failf("StartNew: event %s did not arrive, whose Publish began after the call had returned", p.event.ID())
			}
		}
	}
}

// positions publishes events at different times and returns their deliveries.
func (e *env) positions(b Broker, events []event.Event) []*messaging.Delivery {
	src := e.subscribe(b, e.sub())
	var out []*messaging.Delivery
	for _, ev := range events {
		before := time.Now()
		e.publish(b, ev)
		d := e.expect(src, ev, 1)
		e.ack(d)
		if d.Info.Sequence == 0 || d.Info.Stored.IsZero() {
			e.failf("event %s was delivered with sequence %d, stored at %v: neither may be zero with Positions",
				ev.ID(), d.Info.Sequence, d.Info.Stored)
		}
		if e.Bubble && d.Info.Stored.Before(before.Round(0)) {
			e.failf("event %s was stored at %v, by Info, and published at %v", ev.ID(), d.Info.Stored, before)
		}
		if n := len(out); n > 0 && (d.Info.Sequence <= out[n-1].Info.Sequence || !d.Info.Stored.After(out[n-1].Info.Stored)) {
			e.failf("event %s has sequence %d, stored at %v, after %d at %v", ev.ID(),
				d.Info.Sequence, d.Info.Stored, out[n-1].Info.Sequence, out[n-1].Info.Stored)
		}
		out = append(out, d)
		e.tick()
	}
	return out
}

func sub2Sequence(e *env) {
	b := e.open()
	events := e.events(6, "sub.position")
	events[3].SetType("sub.other")
	ds := e.positions(b, events)
	src := e.subscribe(b, e.startFrom(ds[3].Info.Sequence, "sub.position"))
	e.accept(src, events[4:]...) // the event at that sequence is of another type
	src = e.subscribe(b, e.startFrom(ds[2].Info.Sequence, "sub.position"))
	e.accept(src, events[2], events[4], events[5])
	for _, sequence := range []uint64{0, 1, ds[0].Info.Sequence} {
		src = e.subscribe(b, e.startFrom(sequence))
		e.accept(src, events...)
	}
	next := e.subscribe(b, e.startFrom(ds[5].Info.Sequence+1))
	more := e.events(2, "sub.position")
	e.publish(b, more...)
	e.accept(next, more...)

	// Its position is kept like any other's.
	sub := e.startFrom(ds[4].Info.Sequence)
	src = e.subscribe(b, sub)
	e.accept(src, events[4])
	e.closing(src)
	e.acceptAll(e.subscribe(b, sub), events[5], more[0], more[1])
}

// A sequence that the log has not reached is where the subscription starts all
// the same.
func sub2Ahead(e *env) {
	b := e.open()
	events := e.events(3, "sub.position")
	last := e.positions(b, events)[2].Info.Sequence
	src := e.subscribe(b, e.startFrom(last+3))
	more := e.events(4, "sub.position")
	more[0].SetType("sub.other")
	e.publish(b, more...)
	e.accept(src, more[2:]...)
	e.fence(b, src, "sub.position")
}

func (e *env) startFrom(sequence uint64, types ...string) messaging.Subscription {
	sub := e.sub(types...)
	sub.Start = messaging.StartFrom(sequence)
	return sub
}

func (e *env) startAt(t time.Time, types ...string) messaging.Subscription {
	sub := e.sub(types...)
	sub.Start = messaging.StartAt(t)
	return sub
}

func sub2Time(e *env) {
	b := e.open()
	before := time.Now().Add(-time.Hour)
	events := e.events(5, "sub.position")
	ds := e.positions(b, events)
	for _, c := range []struct {
		t    time.Time
		want []event.Event
	}{
		{before, events},
		{ds[0].Info.Stored, events},
		{ds[2].Info.Stored, events[2:]},
		{ds[2].Info.Stored.Add(1), events[3:]},
		{ds[3].Info.Stored.Add(-1), events[3:]},
	} {
		e.accept(e.subscribe(b, e.startAt(c.t)), c.want...)
	}
	src := e.subscribe(b, e.startAt(ds[4].Info.Stored.Add(1)))
	e.fence(b, src, "sub.position")
	for _, ahead := range []time.Duration{time.Minute, 24 * time.Hour} {
		sub := e.startAt(time.Now().Add(ahead))
		e.refused(b, sub, messaging.ErrInvalid)
	}
}
