package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

func pub2(e *env) {
	b := e.open()
	events := e.events(400, "pub.order")
	rest := events
	for n := 1; len(rest) > 0; n = 1 + (n*7)%40 {
		n = min(n, len(rest))
		e.publish(b, rest[:n]...)
		rest = rest[n:]
	}
	src := e.subscribe(b, e.sub())
	var last uint64
	for _, ev := range events {
		d := e.expect(src, ev, 1)
		if s := d.Info.Sequence; s != 0 && s <= last {
			e.failf("event %s has sequence %d after %d", ev.ID(), s, last)
		}
		last = d.Info.Sequence
		e.ack(d)
	}
}

// interrupted publishes events in one call whose context ends somewhere in it,
// and returns for each event what became of it.
func (e *env) interrupted(b messaging.Publisher, events []event.Event) []error {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	wait := e.async(func() {
		for range rand.N(50) {
			time.Sleep(time.Duration(rand.N(20)) * time.Microsecond)
		}
		cancel()
	})
	e.begin("Publish whose context is cancelled")
	err := b.Publish(ctx, events...)
	wait()
	outcomes := make([]error, len(events))
	if batch, ok := errors.AsType[*reactor.BatchError](err); ok {
		if len(batch.Errors) != len(events) {
			e.failf("Publish of %d events returned a BatchError with %d: %v", len(events), len(batch.Errors), err)
		}
		return batch.Errors
	}
	for i := range outcomes {
		outcomes[i] = err
	}
	return outcomes
}

// completed publishes events in a call that is cut off, and again as a whole
// right after that. It hands what arrives to see; not if all of it took so long
// that the deduplication window may have ended.
func (e *env) completed(see func(src messaging.Source, events []event.Event)) {
	b := e.open()
	for round := range 15 {
		typ := fmt.Sprintf("pub.cut.%d", round)
		src := e.subscribe(b, e.sub(typ))
		events := e.events(1+rand.N(50), typ)
		began := time.Now()
		e.interrupted(b, events)
		e.publish(b, events...)
		e.given("when a Publish of %d events that was cut off had been repeated", len(events))
		if took := time.Since(began); took > e.Duplicates/2 {
			e.closing(src)
			continue
		}
		see(src, events)
		e.fence(b, src, typ)
		e.closing(src)
	}
}

func pub2PartWay(e *env) {
	e.completed(func(src messaging.Source, events []event.Event) { e.accept(src, events...) })
}

func pub6Done(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	canceled, cancel := context.WithCancel(e.ctx)
	cancel()
	expired, cancel := context.WithDeadline(e.ctx, time.Now().Add(-1))
	defer cancel()
	events := e.events(3, "pub.done")
	bad := e.event("pub.done")
	v1(&bad).Type = ""
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{canceled, context.Canceled}, {expired, context.DeadlineExceeded}} {
		e.begin("Publish with a context that is done")
		e.is(b.Publish(c.ctx, events[0]), c.want, "Publish with a context that is done")
		e.is(b.Publish(c.ctx, events...), c.want, "Publish of three events with a context that is done")
		e.is(b.Publish(c.ctx, bad), c.want, "Publish of an invalid event with a context that is done")
	}
	e.fence(b, src, "pub.done")
	e.publish(b, events...)
	e.accept(src, events...)
}

// Calls that are cut off somewhere: what was reported as stored is, and what
// was reported as not stored is not.
func pub6Outcomes(e *env) {
	b := e.open()
	stored, refused := make(map[string]bool), make(map[string]bool)
	for range 20 {
		events := e.events(1+rand.N(20), "pub.cut")
		for i, err := range e.interrupted(b, events) {
			switch {
			case err == nil:
				stored[events[i].ID()] = true
			case !errors.Is(err, messaging.ErrUnknown):
				refused[events[i].ID()] = true
			}
		}
	}
	marker := e.event("pub.cut")
	e.publish(b, marker)
	src := e.subscribe(b, e.sub())
	for {
		d := e.receive(src)
		e.ack(d)
		id := d.Value.ID()
		if id == marker.ID() {
			break
		}
		if refused[id] {
			e.failf("event %s arrived, and Publish had said that it is not stored", id)
		}
		delete(stored, id)
	}
	for id := range stored {
		e.failf("event %s did not arrive, and Publish had said that it is stored", id)
	}
}

// Publishing all of such a call again completes it.
func pub6Completed(e *env) {
	e.completed(func(src messaging.Source, events []event.Event) { e.acceptAll(src, events...) })
}

// The others of its call arrive, also where a Receive waits and the duplicate is
// the first.
func pub3First(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ev, next := e.event("pub.first"), e.event("pub.first")
	e.publish(b, ev)
	e.accept(src, ev)
	waiting := e.async(func() { e.accept(src, next) })
	e.pause(e.AckWait / 20)
	e.publish(b, ev, next)
	waiting()
}

// It needs no room in a log that is at its bound; and what was refused is none.
func pub3Full(e *env) {
	b := e.openFull()
	d := e.receive(e.subscribe(b, e.sub()))
	e.publish(b, d.Value) // is stored already
	ev := e.event("ret.full")
	for range 2 { // a refused call leaves no ids
		e.is(e.tryPublish(b, ev), messaging.ErrFull, "Publish to a log that is at its bound")
	}
}

// Nothing has to go for it.
func pub3Discards(e *env) {
	b := e.discarding(5)
	events := e.events(5, "ret.dup")
	e.publish(b, events...)
	e.publish(b, events[3:]...)
	e.publish(b, events[4])
	src := e.subscribe(b, e.sub())
	e.accept(src, events...)
}
