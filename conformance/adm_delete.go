package conformance

import (
	"context"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

func adm3Discarded(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.delete")
	sub.MaxInFlight = 3
	bystander := e.sub()
	src, other := e.subscribe(b, sub), e.subscribe(b, bystander)
	events := e.events(8, "adm.delete")
	e.publish(b, events...)
	e.publish(b, e.event("adm.other"))
	e.ack(e.expect(src, events[0], 1))
	e.reject(e.expect(src, events[1], 1), "for a test")
	held := e.expect(src, events[2], 1)
	e.retry(e.expect(src, events[3], 1), e.long()/4)
	e.expect(src, events[4], 1)
	e.counts(a, sub, counted{pending: 3, inFlight: 3, redelivered: anything, letters: 1})
	if n := e.delete(a, sub); n != 6 {
		e.failf("Delete of a subscription with 3 events pending and 3 in flight tells of %d", n)
	}
	e.gone(a, sub)
	_, err := src.Receive(e.ctx)
	e.is(err, messaging.ErrNotFound, "Receive after Delete")
	e.stale(held, "Ack", func(d *messaging.Delivery, ctx context.Context) error { return d.Ack(ctx) })
	e.closing(src)
	e.collect(9, other)

	empty := e.sub()
	empty.Start = messaging.StartNew()
	e.closing(e.subscribe(b, empty))
	if n := e.delete(a, empty); n != 0 {
		e.failf("Delete of a subscription without events tells of %d", n)
	}
	for _, ask := range asks[:3] {
		ctx, cancel := e.settling(ask.name)
		e.is(ask.ask(ctx, a, empty), messaging.ErrNotFound, "%s of a subscription that was deleted", ask.name)
		cancel()
	}
}

// A subscription of the same name is another one: it has other settings, and
// begins at its Start, with every attempt the first.
func adm3Anew(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(4, "adm.anew")
	e.publish(b, events[:3]...)
	e.ack(e.expect(src, events[0], 1))
	e.reject(e.expect(src, events[1], 1), "for a test")
	e.retry(e.expect(src, events[2], 1), 0)
	stale := e.expect(src, events[2], 2)
	e.seek(a, sub, messaging.StartFirst()) // and this is forgotten, too
	e.retry(e.expect(src, events[0], 1), e.AckWait)
	e.publish(b, events[3])
	e.delete(a, sub)

	other := sub
	other.MaxInFlight, other.Types, other.AckWait = len(events), []string{"adm.anew"}, e.AckWait
	fresh := e.subscribe(b, other)
	_, err := src.Receive(e.ctx)
	e.is(err, messaging.ErrNotFound, "Receive of a member whose subscription was deleted, and made anew")
	e.settings(a, other)
	var ds []*messaging.Delivery
	for _, ev := range events {
		ds = append(ds, e.expect(fresh, ev, 1))
	}
	e.stale(stale, "Ack", func(d *messaging.Delivery, ctx context.Context) error { return d.Ack(ctx) })
	for _, i := range []int{0, 1, 3} {
		e.ack(ds[i])
	}
	e.ack(e.lost(fresh, ds[2], events[2], 2))
	e.closing(src) // disturbs nobody
	e.fence(b, fresh, "adm.anew")
	e.quiet(fresh, 2*e.AckWait+e.Slack)

	e.delete(a, other)
	other.Start = messaging.StartNew()
	fresh = e.subscribe(b, other)
	e.fence(b, fresh, "adm.anew")
}

// The Receives of members return ErrNotFound, those that wait and those that
// come later [RCV-1]; Close ends a member as ever.
func adm3Members(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	one, two, bystander := e.subscribe(b, sub), e.subscribe(b, sub), e.subscribe(b, e.sub())
	var waits []func()
	errs := make([]error, 4)
	for i, src := range []messaging.Source{one, one, two, two} {
		waits = append(waits, e.async(func() { _, errs[i] = src.Receive(e.ctx) }))
	}
	e.pause(e.AckWait / 10)
	e.delete(a, sub)
	for i, wait := range waits {
		e.takes(e.prompt(), "Receive of a member whose subscription was deleted", wait)
		e.is(errs[i], messaging.ErrNotFound, "Receive during which the subscription was deleted")
	}
	ev := e.event("adm.members")
	e.publish(b, ev)
	for _, src := range []messaging.Source{one, two, one} {
		var err error
		e.takes(e.prompt(), "Receive of a member whose subscription was deleted", func() { _, err = src.Receive(e.ctx) })
		e.is(err, messaging.ErrNotFound, "Receive after the subscription was deleted")
	}
	e.closing(one)
	_, err := one.Receive(e.ctx)
	e.is(err, messaging.ErrClosed, "Receive after Close of a member whose subscription was deleted")
	e.accept(bystander, ev)
	e.gone(a, sub)

	// A reactor ends with it [RUN-8].
	running := e.sub()
	var handled calls
	r := e.start(e.subscribe(b, running), handled.handler, nil)
	e.await("the handler", func() bool { return handled.len() == 1 })
	e.delete(a, running)
	e.is(r.wait(e.lenient(e.AckWait)), messaging.ErrNotFound, "Run whose subscription was deleted")
}

// Dead letters stay: with the subscriptions on them, and for one that is made
// anew under the name; until they are deleted.
func adm3Letters(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.letter")
	src := e.subscribe(b, sub)
	list := e.dead(sub)
	letters := e.subscribe(b, list)
	events := e.events(5, "adm.letter")
	e.bury(b, src, events...)
	ds := e.deadLetters(letters, events[:2]...)
	e.ack(ds[0])
	e.reject(ds[1], "again")
	e.delete(a, sub)
	rest := e.deadLetters(letters, events[2:]...)
	e.ack(rest[0])
	e.counts(a, list, counted{inFlight: 2})

	sub.Start = messaging.StartNew()
	src = e.subscribe(b, sub)
	e.counts(a, sub, counted{letters: 3})
	e.settings(a, list)
	other := e.dead(sub)
	e.deadLetters(e.subscribe(b, other), events[1], events[3], events[4])

	// A subscription on them is deleted as any other, and leaves them.
	if n := e.delete(a, list); n != 2 {
		e.failf("Delete of a subscription with 2 dead letters in flight tells of %d", n)
	}
	_, err := letters.Receive(e.ctx)
	e.is(err, messaging.ErrNotFound, "Receive after Delete")
	e.counts(a, sub, counted{letters: 3})
	e.deadLetters(e.subscribe(b, list), events[1], events[3], events[4])

	e.deleteLetters(a, sub.Name, 3)
	e.counts(a, sub, counted{})
	e.counts(a, list, counted{pending: anything, inFlight: anything, redelivered: anything})
	e.deleteLetters(a, sub.Name, 0)
	fresh := e.subscribe(b, e.dead(sub))
	last := e.event("adm.letter")
	e.publish(b, last)
	e.reject(e.expect(src, last, 1), "for a test")
	e.deadLetter(fresh, last)
	e.quiet(fresh, e.absence()/2)

	// Of a subscription that is no more, too.
	e.counts(a, sub, counted{letters: 1})
	e.delete(a, sub)
	e.deleteLetters(a, sub.Name, 1)
	sub.Start = messaging.StartNew()
	e.subscribe(b, sub)
	e.quiet(e.subscribe(b, e.dead(sub)), e.absence()/2)
}

// What did not decode stays, and goes, with the dead letters.
func adm3Undecodable(e *env) {
	b, a := e.openAdmin()
	for _, letters := range []int{2, 0} {
		sub := e.sub()
		sub.Start = messaging.StartNew()
		src := e.subscribeReport(b, sub, func(context.Context, error) {})
		events := e.events(letters+1, "adm.raw")
		for _, f := range foreign[:3] {
			e.injected(b, f.header, []byte(f.body))
		}
		e.publish(b, events...)
		for _, ev := range events[:letters] {
			e.reject(e.expect(src, ev, 1), "for a test")
		}
		e.accept(src, events[letters])
		e.undecodable(a, sub.Name, 3)
		e.delete(a, sub)
		e.deleteLetters(a, sub.Name, uint64(3+letters))
		e.subscribe(b, sub)
		e.undecodable(a, sub.Name, 0)
		e.deleteLetters(a, sub.Name, 0)
	}
}

// undecodable returns what did not decode, once there are n.
func (e *env) undecodable(a messaging.Admin, name string, n int) []*messaging.DecodeError {
	for end := e.later(time.Now()); ; e.pause(e.AckWait / 20) {
		ctx, cancel := e.settling("Undecodable")
		all, err := a.Undecodable(ctx, name)
		cancel()
		e.ok(err, "Undecodable(%s)", name)
		if len(all) == n {
			return all
		}
		if !time.Now().Before(end) {
			e.failf("Undecodable(%s) returns %d messages, want %d", name, len(all), n)
		}
	}
}

// What did not decode can still be looked at when its subscription is gone.
func adm3Raw(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribeReport(b, sub, func(context.Context, error) {})
	e.injected(b, foreign[1].header, []byte(foreign[1].body))
	e.fence(b, src, "adm.raw")
	e.delete(a, sub)
	e.undecodable(a, sub.Name, 1)
}

// A member on the dead letters gets those of the next subscription of the name.
func adm3Parent(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	e.closing(e.subscribe(b, sub))
	list := e.subscribe(b, e.dead(sub))
	e.delete(a, sub)
	src := e.subscribe(b, sub)
	ev := e.event("adm.letter")
	e.bury(b, src, ev)
	e.deadLetter(list, ev)
}

// A subscription on dead letters is not the one whose name it has.
func adm3Namesake(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	list := e.dead(sub)
	list.Name = sub.Name
	e.closing(e.subscribe(b, list))
	e.delete(a, list)
	ev := e.event("adm.letter")
	e.bury(b, src, ev)
	e.deadLetter(e.subscribe(b, list), ev)
}

// DeleteDeadLetters takes those that are out or back off, too.
func adm3Out(e *env) {
	b, a := e.openAdmin()
	sub, _, events := e.died(b, 2)
	list := e.subscribe(b, e.dead(sub))
	ds := e.deadLetters(list, events...)
	e.retry(ds[1], e.AckWait/2)
	e.deleteLetters(a, sub.Name, 2)
	_ = ds[0].Retry(e.ctx, 0) // it may say so, or not
	e.quiet(list, e.absence()+e.AckWait/4)
}

// A member that was done with all of them gets the next.
func adm3On(e *env) {
	b, a := e.openAdmin()
	sub, src, events := e.died(b, 2)
	list := e.subscribe(b, e.dead(sub))
	for _, d := range e.deadLetters(list, events...) {
		e.reject(d, "again")
	}
	e.deleteLetters(a, sub.Name, 2)
	ev := e.event("adm.letter")
	e.bury(b, src, ev)
	e.deadLetter(list, ev)
}
