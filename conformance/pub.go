package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

var pubChecks = map[string][]check{
	"PUB-1": {
		{name: "matching_subscriptions", do: pub1Matching},
		{name: "silent_broker", do: pub1Silent},
		{name: "waiting_members", do: pub1Waiting},
		{name: "backlog", do: pub1Backlog},
		{name: "batch", do: pub1Batch},
		{name: "while_a_handler_is_inside", do: pub1Inside},
		{name: "as_receives_begin_and_end", do: pub1Receives},
	},
	"PUB-2": {
		{name: "order", do: pub2},
		{name: "part_way", do: pub2PartWay, needs: OrderedPublish},
	},
	"PUB-3": {
		{name: "duplicates", do: pub3, dedup: true},
		{name: "distinct", do: pub3Distinct},
		{name: "concurrent", do: pub3Concurrent, dedup: true},
		{name: "to_the_end_of_the_window", do: pub3Window, window: true},
		{name: "many", do: pub3Many, window: true},
		{name: "before_another", do: pub3First, dedup: true},
		{name: "full", do: pub3Full, full: true, dedup: true},
		{name: "discards_nothing", do: pub3Discards, discards: true, dedup: true},
	},
	"PUB-4": {{name: "after_the_window", do: pub4, window: true}},
	"PUB-5": {{name: "whole_call", do: pub5}},
	"PUB-6": {
		{name: "context_done", do: pub6Done},
		{name: "part_way", do: pub6Outcomes},
		{name: "again", do: pub6Completed},
	},
	"PUB-7": {{name: "stuck_subscriptions", do: pub7}},
	"PUB-8": {{name: "stored_is_delivered", do: pub8}},
	"PUB-9": {{name: "closed_and_empty", do: pub9}},
	"PUB-10": {
		{name: "concurrent", do: pub10},
	},
	"PUB-11": {{name: "restart", do: pub11, needs: Durable, restart: true}},
}

// Every subscription that matches gets every event: those that were there, and
// those that come later and begin at the first.
func pub1Matching(e *env) {
	b := e.open()
	all, one, other := e.sub(), e.sub("pub.one"), e.sub("pub.two")
	subs := []messaging.Source{e.subscribe(b, all), e.subscribe(b, one), e.subscribe(b, other)}
	first, second, third := e.event("pub.one"), e.event("pub.two"), e.event("pub.one")
	e.publish(b, first)
	e.publish(b, second, third)
	late := []messaging.Source{e.subscribe(b, e.sub()), e.subscribe(b, e.sub("pub.one")), e.subscribe(b, e.sub("pub.two"))}
	for _, s := range [][]messaging.Source{subs, late} {
		e.accept(s[0], first, second, third)
		e.accept(s[1], first, third)
		e.accept(s[2], second)
	}
	e.fence(b, subs[0], "pub.three")
	e.fence(b, late[1], "pub.one")
}

// One publish into a broker in which nothing happens, with a Receive that waits.
func pub1Silent(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ev := e.event("pub.silent")
	wait := e.async(func() { e.ack(e.again(src, ev, 1, time.Time{}, time.Now().Add(e.absence()))) })
	e.pause(e.absence())
	e.publish(b, ev)
	wait()

	// Once more, after a Receive that found nothing.
	e.quiet(src, e.absence())
	ev = e.event("pub.silent")
	wait = e.async(func() { e.accept(src, ev) })
	e.publish(b, ev)
	wait()
}

// No wake-up is lost: members that wait get everything, whether it comes one
// by one or all at once.
func pub1Waiting(e *env) {
	b := e.open()
	sub := e.sub()
	var members []messaging.Source
	for range 4 {
		m := e.subscribe(b, sub)
		members = append(members, m, m) // two Receives each
	}
	var events []event.Event
	for range 10 {
		events = append(events, e.events(6, "pub.waiting")...)
	}
	publish := e.async(func() {
		for chunk := range slices.Chunk(events, 6) {
			e.publish(b, chunk[:3]...)
			for _, ev := range chunk[3:] {
				e.publish(b, ev)
			}
			e.tick()
		}
	})
	got := e.collect(len(events), members...)
	publish()
	e.contains(got, events)
	for _, m := range members[:2] {
		e.quiet(m, e.absence())
	}
}

func pub1Backlog(e *env) {
	b := e.open()
	events := e.events(2000, "pub.backlog")
	e.publishIn(b, 100, events)
	src := e.subscribe(b, e.sub())
	e.accept(src, events...)
	e.fence(b, src, "pub.backlog")
}

func pub1Batch(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	events := e.events(300, "pub.batch")
	e.publish(b, events...)
	e.accept(src, events...)
	e.fence(b, src, "pub.batch")
}

func pub1Inside(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	inside, published, done := make(chan string, 1), make(chan struct{}), make(chan string, 1)
	wait := e.async(func() {
		e.ok(reactor.Run(ctx, src, func(ctx context.Context, ev event.Event) error {
			select {
			case inside <- ev.ID():
				<-published
			default:
				done <- ev.ID()
			}
			return nil
		}, nil), "Run")
	})
	first, second := e.event("pub.inside"), e.event("pub.inside")
	e.publish(b, first)
	e.await("the handler", func() bool { return len(inside) == 1 })
	e.publish(b, second)
	close(published)
	e.await("the event that was published while the handler ran", func() bool { return len(done) == 1 })
	if id := <-done; id != second.ID() {
		e.failf("event %s was handled, want %s", id, second.ID())
	}
	cancel()
	wait()
}

// await waits until a condition holds, which it should do at once.
func (e *env) await(what string, holds func() bool) {
	e.begin("waiting for %s", what)
	for end := time.Now().Add(e.prompt()); !holds(); {
		if time.Now().After(end) {
			e.failf("%s: not within %v", what, e.prompt())
		}
		e.tick()
	}
}

func pub3(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ev := e.event("pub.twice")
	e.publish(b, ev)
	e.publish(b, ev)
	other := e.event("pub.twice")
	e.publish(b, other, ev, other)
	e.given("when %q and %q had been published several times within the window", ev.ID(), other.ID())
	e.accept(src, ev, other)
	e.publish(b, ev, other) // after they were acked
	changed := e.eventOf(ev.Source(), ev.ID(), "pub.changed")
	e.publish(b, changed) // source and id are what counts
	e.fence(b, src, "pub.twice")

	// Nobody else sees a duplicate either, and a duplicate keeps no other
	// event of its call out.
	third := e.event("pub.twice")
	e.publish(b, ev, third)
	e.accept(src, third)
	late := e.subscribe(b, e.sub("pub.twice"))
	e.accept(late, ev, other)
}

// Events that differ in source or id are different, however the two are put
// together.
func pub3Distinct(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	unique := e.name()
	var events []event.Event
	for _, c := range [][2]string{
		{"/a", "b"}, {"/b", "b"}, {"/a", "a"}, {"/a", "B"}, {"/A", "b"}, {"/a", "b "}, {"/a", " b"}, {"/a/b", "c"}, {"/a", "/b/c"}, {"/a/", "b/c"},
		{"/a/b", "/c"}, {"/ab", "c"}, {"/a", "bc"}, {"/a%20b", "c"}, {"/a", "b c"}, {"/a", "%20b"}, {"/a", "1"}, {"/a", "01"}, {"/a", "1.0"},
		{"/a:b", "c"}, {"/a", ":b:c"}, {"/a", "b:c"}, {"/a|b", "c"}, {"/a", "b|c"}, {"/a-b", "c"}, {"/a", "b-c"}, {"/a", "ü"}, {"/a", "u\u0308"},
	} {
		events = append(events, e.eventOf("/"+unique+c[0], c[1], "pub.distinct"))
	}
	e.publish(b, events[:5]...)
	for _, ev := range events[5:] {
		e.publish(b, ev)
	}
	e.accept(src, events...)
	e.fence(b, src, "pub.distinct")
}

// Publishers of the same event at the same time: it is stored once, and it is
// stored when the first of them is told so.
func pub3Concurrent(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	for range 10 {
		ev := e.event("pub.concurrent")
		var waits []func()
		for range 8 {
			waits = append(waits, e.async(func() { e.publish(b, ev) }))
		}
		for _, wait := range waits {
			wait()
		}
		e.given("when %q had been published 8 times at once", ev.ID())
		e.accept(src, ev)
	}
	e.fence(b, src, "pub.concurrent")
}

func pub5(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	bad := e.event("pub.refused")
	v1(&bad).ID = ""
	large := e.event("pub.refused")
	withData("application/octet-stream", string(make([]byte, 2*messaging.MaxEventSize)))(&large)
	good := e.events(5, "pub.good")
	for _, c := range []struct {
		spoiler event.Event
		want    error
	}{{bad, messaging.ErrInvalid}, {large, messaging.ErrTooLarge}, {event.Event{}, messaging.ErrInvalid}} {
		for i := range len(good) + 1 {
			call := slices.Insert(slices.Clone(good), i, c.spoiler)
			e.is(e.tryPublish(b, call...), c.want, "Publish of six events, of which number %d is to be refused", i+1)
		}
	}
	e.fence(b, src, "pub.good")
	e.publish(b, good...) // a refused call leaves no ids either
	e.accept(src, good...)
	e.fence(b, src, "pub.good")
}

func pub7(e *env) {
	b := e.open()
	stuck := e.sub()
	stuck.MaxInFlight = 1
	held, absent := e.subscribe(b, stuck), e.subscribe(b, e.sub())
	e.closing(absent)
	idle := e.subscribe(b, e.sub())
	first := e.event("pub.stuck")
	e.publish(b, first)
	e.expect(held, first, 1) // and is not settled
	events := e.events(1500, "pub.stuck")
	for i := 0; i < len(events); i += 3 {
		e.publish(b, events[i])
		e.publish(b, events[i+1:i+3]...)
	}
	src := e.subscribe(b, e.sub())
	e.accept(src, first)
	e.accept(src, events...)
	e.accept(idle, first)
	e.accept(idle, events...)
}

func pub8(e *env) {
	b := e.open()
	var mu sync.Mutex
	var events []event.Event
	var waits []func()
	for range 4 {
		waits = append(waits, e.async(func() {
			for i := range 50 {
				mine := e.events(1+i%4, "pub.told")
				if e.tryPublish(b, mine...) == nil {
					mu.Lock()
					events = append(events, mine...)
					mu.Unlock()
				}
			}
		}))
	}
	for _, wait := range waits {
		wait()
	}
	src := e.subscribe(b, e.sub())
	e.contains(e.collect(len(events), src), events)
	e.fence(b, src, "pub.told")
}

func pub9(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	e.publish(b)
	e.fence(b, src, "pub.empty")
	e.closing(b)
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	e.begin("Publish on a closed broker")
	e.is(b.Publish(e.ctx, e.event("pub.closed")), messaging.ErrClosed, "Publish on a closed broker")
	e.is(b.Publish(e.ctx), messaging.ErrClosed, "Publish of no events on a closed broker")
	e.is(b.Publish(done, e.event("pub.closed")), messaging.ErrClosed, "Publish on a closed broker with a context that is done")
	e.is(b.Publish(e.ctx, event.Event{}), messaging.ErrClosed, "Publish of an invalid event on a closed broker")
}

func pub10(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	const publishers, each = 8, 60
	all := make(map[string][]event.Event)
	var waits []func()
	for p := range publishers {
		typ := fmt.Sprintf("pub.by.%d", p)
		events := e.events(each, typ)
		all[typ] = events
		waits = append(waits, e.async(func() {
			for i := 0; i < len(events); i += 2 + p {
				e.publish(b, events[i:min(i+2+p, len(events))]...)
			}
		}))
	}
	for range publishers * each {
		d := e.receive(src)
		want := all[d.Value.Type()]
		if len(want) == 0 {
			e.failf("event %s arrived, which is one too many of type %s", d.Value.ID(), d.Value.Type())
		}
		e.same(d, want[0]) // in each publisher's order
		e.ack(d)
		all[d.Value.Type()] = want[1:]
	}
	for _, wait := range waits {
		wait()
	}
	e.fence(b, src, "pub.after")
}

func pub11(e *env) {
	b := e.open()
	events := e.events(200, "pub.durable")
	e.publish(b, events[:100]...)
	for _, ev := range events[100:] {
		e.publish(b, ev)
	}
	b = e.restart(b)
	src := e.subscribe(b, e.sub())
	e.accept(src, events...)
	e.fence(b, src, "pub.durable")
}

func (e *env) restart(b Broker) Broker {
	e.begin("Restart")
	return e.restarted(b)
}
