package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

var retChecks = map[string][]check{
	"RET-1": {{name: "acked_or_not", do: ret1}},
	"RET-2": {
		{name: "full", do: ret2, full: true},
		{name: "each", do: ret2Each, full: true},
		{name: "larger_than_the_log", do: ret2Larger, discards: true},
	},
	"RET-3": {
		{name: "told", do: ret3, discards: true},
		{name: "while_a_member_is_open", do: ret3Open, discards: true},
		{name: "begins_later", do: ret3Start, discards: true, needs: Positions},
		{name: "many", do: ret3Many, discards: true},
	},
}

// losses are what a subscription was told of discarded events.
type losses struct {
	mu   sync.Mutex
	errs []error
}

func (l *losses) report(_ context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// told expects the subscription to have been told that it lost n events, all in
// all; a count of 0 stands for any.
func (l *losses) told(e *env, sub messaging.Subscription, n uint64) {
	some := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.errs) > 0
	}
	if n > 0 {
		e.await("the report of events that were discarded", some)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var count uint64
	for _, err := range l.errs {
		d, ok := errors.AsType[*messaging.DiscardedError](err)
		switch {
		case !ok:
			e.failf("the report of discarded events is no DiscardedError: %v", err)
		case d.Subscription != sub.Name:
			e.failf("the report of discarded events names the subscription %q, want %q", d.Subscription, sub.Name)
		case n == 0:
			e.failf("the subscription %s lost nothing, and was told: %v", sub.Name, err)
		case d.Count == 0:
			return
		}
		count += d.Count
	}
	if count != n {
		e.failf("the subscription %s lost %d events, and was told of %d: %v", sub.Name, n, count, l.errs)
	}
}

// Who loses events that he has not received is told, of as many as it were; and
// nobody else is.
func ret3(e *env) {
	e.begin("OpenDiscarding")
	b := e.discarding(5)
	behind, narrow, ahead, other := e.sub(), e.sub("ret.one"), e.sub(), e.sub("ret.none")
	e.closing(e.subscribe(b, behind))
	e.closing(e.subscribe(b, narrow))
	var toAhead, toOther, toBehind, toNarrow, toLate losses
	front := e.subscribeReport(b, ahead, toAhead.report)
	rest := e.subscribeReport(b, other, toOther.report)
	events := e.events(12, "ret.one")
	for i := range events {
		if i%2 == 0 {
			events[i].SetType("ret.two")
		}
		e.publish(b, events[i])
		e.accept(front, events[i])
	}
	src := e.subscribeReport(b, behind, toBehind.report)
	e.accept(src, events[7:]...)
	toBehind.told(e, behind, 7)
	one := e.subscribeReport(b, narrow, toNarrow.report)
	e.accept(one, events[7], events[9], events[11])
	toNarrow.told(e, narrow, 3)
	late := e.sub()
	last := e.subscribeReport(b, late, toLate.report)
	e.accept(last, events[7:]...)

	marker := e.event("ret.none")
	e.publish(b, marker)
	for _, src := range []messaging.Source{front, rest, src, last} {
		e.accept(src, marker)
		e.quiet(src, e.absence()/4)
	}
	e.quiet(one, e.absence()/4)
	// Once is enough, and who lost nothing is told nothing.
	toBehind.told(e, behind, 7)
	toNarrow.told(e, narrow, 3)
	toAhead.told(e, ahead, 0)
	toOther.told(e, other, 0)
	toLate.told(e, late, 0)
}

// A member may have fetched some of what is discarded; the rest it has lost.
func ret3Open(e *env) {
	e.begin("OpenDiscarding")
	b := e.discarding(4)
	sub := e.sub()
	sub.MaxInFlight = 2
	var told losses
	src := e.subscribeReport(b, sub, told.report)
	events := e.events(20, "ret.open")
	e.publish(b, events[0])
	held := e.expect(src, events[0], 1)
	for _, ev := range events[1:] {
		e.publish(b, ev)
	}
	e.ack(held)
	got := make(map[string]bool)
	for !got[events[len(events)-1].ID()] {
		d := e.receive(src)
		e.attempt(d, 1)
		e.ack(d)
		got[d.Value.ID()] = true
	}
	for _, ev := range events[16:] {
		if !got[ev.ID()] {
			e.failf("event %s was not discarded, and did not arrive", ev.ID())
		}
	}
	told.told(e, sub, uint64(len(events)-1-len(got)))
	e.fence(b, src, "ret.open")
}

func ret1(e *env) {
	b := e.open()
	events := e.events(20, "ret.kept")
	e.publish(b, events...)
	first := e.subscribe(b, e.sub())
	e.accept(first, events...)
	rejecting := e.sub()
	rejecting.MaxAttempts = 1
	second := e.subscribe(b, rejecting)
	for _, ev := range events[:5] {
		e.reject(e.expect(second, ev, 1), "for a test")
	}
	e.pause(2 * e.AckWait)
	third := e.subscribe(b, e.sub())
	e.accept(third, events...)
	e.fence(b, third, "ret.kept")
}

func ret2(e *env) {
	b := e.openFull()
	kept := func() []string {
		src := e.subscribe(b, e.sub())
		var ids []string
		for {
			d := e.receiveUntil(src, time.Now().Add(e.AckWait))
			if d == nil {
				e.closing(src)
				return ids
			}
			ids = append(ids, d.Value.ID())
			e.ack(d)
		}
	}
	before := kept()
	for range 3 {
		e.is(e.tryPublish(b, e.event("ret.full")), messaging.ErrFull, "Publish to a log that is at its bound")
		e.is(e.tryPublish(b, e.events(3, "ret.full")...), messaging.ErrFull, "Publish of three events to a log that is at its bound")
	}
	e.is(e.tryPublish(b, event.Event{}), messaging.ErrInvalid, "Publish of an invalid event to a log that is at its bound")
	e.ok(e.tryPublish(b), "Publish of no events to a log that is at its bound")
	if after := kept(); !slices.Equal(before, after) {
		e.failf("the log had %d events before the Publish that was refused, and other %d after it", len(before), len(after))
	}
}

// Each event of the call has its error, also one that is in it twice.
func ret2Each(e *env) {
	b := e.openFull()
	events := e.events(2, "ret.each")
	err := e.tryPublish(b, events[0], events[1], events[0])
	batch, ok := errors.AsType[*reactor.BatchError](err)
	if !ok || len(batch.Errors) != 3 {
		e.failf("Publish of three events to a log that is at its bound returned no BatchError of three: %v", err)
	}
	for i, err := range batch.Errors {
		e.is(err, messaging.ErrFull, "event %d of a Publish to a log that is at its bound", i+1)
	}
}

// A call that is larger than the log leaves its last events, or is refused.
func ret2Larger(e *env) {
	b := e.discarding(5)
	events := e.events(8, "ret.larger")
	err := e.tryPublish(b, events...)
	src := e.subscribe(b, e.sub())
	if err == nil {
		e.accept(src, events[3:]...)
	} else {
		e.is(err, messaging.ErrFull, "Publish of 8 events to a log of 5")
	}
	e.fence(b, src, "ret.larger")
}

// Who begins at a position that is gone has lost nothing.
func ret3Start(e *env) {
	b := e.discarding(5)
	events := e.events(12, "ret.start")
	for _, ev := range events {
		e.publish(b, ev)
	}
	var told losses
	sub := e.startFrom(1)
	src := e.subscribeReport(b, sub, told.report)
	e.accept(src, events[7:]...)
	e.fence(b, src, "ret.start")
	told.told(e, sub, 0)
}

// However many go at a time, and while a member is busy: what it did not receive
// is what it was told of.
func ret3Many(e *env) {
	b := e.discarding(50)
	sub := e.sub()
	e.closing(e.subscribe(b, sub))
	events := e.events(3000, "ret.many")
	e.publishIn(b, 40, events[:1500])
	var told losses
	src := e.subscribeReport(b, sub, told.report)
	e.accept(src, events[1450:1500]...)
	told.told(e, sub, 1450)

	got, last := 50, false
	busy := e.async(func() { e.publishIn(b, 40, events[1500:]) })
	for next := 1500; !last; got++ {
		d := e.receive(src)
		e.attempt(d, 1)
		e.ack(d)
		i := slices.IndexFunc(events[next:], func(ev event.Event) bool { return ev.ID() == d.Value.ID() })
		if i < 0 {
			e.failf("event %s arrived after what was published after it", d.Value.ID())
		}
		next += i + 1
		last = next == len(events)
	}
	busy()
	e.fence(b, src, "ret.many")
	told.told(e, sub, uint64(len(events)-got))
}
