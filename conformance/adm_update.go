package conformance

import (
	"errors"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// The position, and what is out, are kept; the old settings conflict from then
// on, and the new ones join [SUB-4].
func adm4(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.one")
	sub.MaxInFlight, sub.MaxAttempts = 4, 9
	src, bystander := e.subscribe(b, sub), e.sub("adm.one")
	e.subscribe(b, bystander)
	events := e.events(4, "adm.one")
	e.publish(b, events...)
	e.accept(src, events[0])
	held := e.expect(src, events[1], 1)
	next := sub
	next.Types, next.Start = []string{"adm.two", "adm.one", "adm.two"}, messaging.StartNew()
	next.AckWait, next.MaxInFlight, next.MaxAttempts = 2*sub.AckWait, 8, 5
	e.update(a, next)
	e.settings(a, next)
	e.settings(a, bystander)
	e.refused(b, sub, messaging.ErrConflict)
	waits := next
	waits.AckWait = sub.AckWait
	e.refused(b, waits, messaging.ErrConflict)
	e.conflicts(b, next, "MaxInFlight", 8, 4, func(s *messaging.Subscription) { s.MaxInFlight = 4 })
	e.conflicts(b, next, "MaxAttempts", 5, 9, func(s *messaging.Subscription) { s.MaxAttempts = 9 })
	e.conflicts(b, next, "Types", "adm.two", "adm.one", func(s *messaging.Subscription) { s.Types = sub.Types })
	e.ack(held)
	e.accept(src, events[2:]...)
	e.fence(b, src, "adm.two")
	e.closing(e.subscribe(b, next))

	// Without members, and back again.
	e.closing(src)
	e.update(a, sub)
	e.settings(a, sub)
	e.refused(b, next, messaging.ErrConflict)
	src = e.subscribe(b, sub)
	e.fence(b, src, "adm.one")
	e.update(a, sub) // to what it is
	e.fence(b, src, "adm.one")
}

func adm4MaxInFlight(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	sub.MaxInFlight = 1
	src := e.subscribe(b, sub)
	events := e.events(7, "adm.window")
	e.publish(b, events...)
	ds := []*messaging.Delivery{e.expect(src, events[0], 1)}
	waiting := e.async(func() { ds = append(ds, e.expect(src, events[1], 1)) })
	e.pause(e.AckWait / 20)
	sub.MaxInFlight = 3
	e.update(a, sub)
	waiting()
	ds = append(ds, e.expect(src, events[2], 1))
	e.quiet(src, e.absence())

	sub.MaxInFlight = 1
	e.update(a, sub)
	e.ack(ds[1])
	e.ack(ds[0])
	e.quiet(src, e.absence())
	e.ack(ds[2])
	for _, ev := range events[3:] {
		d := e.expect(src, ev, 1)
		e.quiet(src, e.absence()/4)
		e.ack(d)
	}
	e.counts(a, sub, counted{})
}

func adm4MaxAttempts(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(2, "adm.cap")
	e.publish(b, events[0])
	e.retry(e.expect(src, events[0], 1), 0)
	sub.MaxAttempts = 3
	e.update(a, sub)
	most := func(n int) func(*messaging.Delivery) bool {
		return func(d *messaging.Delivery) bool { return d.Info.MaxAttempts == n }
	}
	d := e.noticed(src, "Update", most(3))
	e.attempt(d, 2)
	e.retry(d, 0)
	d = e.expect(src, events[0], 3)
	if !d.Info.Last() {
		e.failf("attempt 3 of 3 is not the last")
	}
	e.retry(d, 0)
	letters := e.subscribe(b, e.dead(sub))
	_, letter := e.deadLetter(letters, events[0])
	if letter.Attempts != 3 {
		e.failf("the dead letter has Attempts %d, with MaxAttempts 3 since the first", letter.Attempts)
	}
	e.quiet(src, e.absence()/2)

	sub.MaxAttempts = 0
	e.update(a, sub)
	e.publish(b, events[1])
	d = e.noticed(src, "Update", most(0))
	for n := 2; n <= 6; n++ {
		e.retry(d, 0)
		d = e.expect(src, events[1], n)
	}
	e.ack(d)
	e.counts(a, sub, counted{letters: 1})
}

// A delivery from before the Update may have the deadline that it had.
func adm4AckWait(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	ev := e.event("adm.wait")
	e.publish(b, ev)
	sub.AckWait = e.AckWait
	e.update(a, sub)
	short := func(d *messaging.Delivery) bool { return time.Until(d.Deadline()) <= e.AckWait }
	d := e.noticed(src, "Update", short)
	e.quiet(src, time.Until(d.Deadline())/2)
	d = e.lost(src, d, ev, 2)
	e.retry(d, 0)

	sub.AckWait = e.long()
	e.update(a, sub)
	d = e.noticed(src, "Update", func(d *messaging.Delivery) bool { return !short(d) })
	e.attempt(d, 3)
	if left := time.Until(d.Deadline()); left < e.long()-e.prompt() || left > e.long() {
		e.failf("the deadline is %v away, with AckWait %v", left, e.long())
	}
	e.quiet(src, 2*e.AckWait+e.Slack)
	e.ack(d)
	e.quiet(src, e.absence()/2)
}

// An Extend may bring a deadline closer after an Update. A Receive that waits by then
// returns the event in time all the same.
func adm4Extend(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	ev := e.event("adm.extend")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	noticed := e.later(time.Now())
	var again *messaging.Delivery
	var arrived time.Time
	waiting := e.async(func() {
		again = e.receiveUntil(src, e.later(noticed.Add(2*e.AckWait)))
		arrived = time.Now()
	})
	e.pause(e.AckWait / 20)
	sub.AckWait = e.AckWait
	e.update(a, sub)
	for {
		ctx, cancel := e.settling("Extend")
		_, err := d.Extend(ctx)
		cancel()
		e.ok(err, "Extend")
		if time.Until(d.Deadline()) <= e.AckWait {
			break
		}
		if !time.Now().Before(noticed) {
			e.failf("an Extend %v after Update to AckWait %v has set the deadline to %v from now", e.prompt(), e.AckWait, time.Until(d.Deadline()))
		}
		e.pause(e.AckWait / 20)
	}
	waiting()
	switch {
	case again == nil:
		e.failf("event %s did not arrive until %v after the deadline that Extend had set", ev.ID(), time.Since(d.Deadline()))
	case arrived.Before(d.Deadline()), arrived.After(e.later(d.Deadline())):
		e.failf("event %s arrived %v after the deadline that Extend had set", ev.ID(), arrived.Sub(d.Deadline()))
	}
	e.same(again, ev)
	e.attempt(again, 2)
	e.ack(again)
}

func adm4Types(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.kept", "adm.removed")
	src := e.subscribe(b, sub)
	kept, removed, added := e.events(5, "adm.kept"), e.events(4, "adm.removed"), e.events(3, "adm.added")
	e.publish(b, added[0], removed[0], kept[0])
	e.accept(src, removed[0], kept[0])
	sub.Types = []string{"adm.added", "adm.kept"}
	e.update(a, sub)
	e.publish(b, removed[1], added[1], kept[1])
	e.accept(src, added[1], kept[1]) // and not what was there before
	e.fence(b, src, "adm.kept")
	e.quiet(src, e.absence()/2)

	// Without members, and with what waits.
	e.closing(src)
	e.publish(b, kept[2], added[2], removed[2], kept[3])
	sub.Types = []string{"adm.kept"}
	e.update(a, sub)
	src = e.subscribe(b, sub)
	e.accept(src, kept[2:4]...)
	e.fence(b, src, "adm.kept")

	// To all, and to none that there are.
	sub.Types = nil
	e.update(a, sub)
	other := e.event("something.else")
	e.publish(b, other, removed[3], kept[4])
	e.accept(src, other, removed[3], kept[4])
	sub.Types = []string{"nothing"}
	e.update(a, sub)
	e.publish(b, e.event("adm.kept"), e.event("something.else"))
	e.fence(b, src, "nothing")
	e.quiet(src, e.absence()/2)
	e.counts(a, sub, counted{})
}

// A subscription on dead letters has settings of its own.
func adm4Letters(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	list := e.dead(sub)
	list.Name = sub.Name
	letters := e.subscribe(b, list)
	old := list
	list.MaxInFlight, list.MaxAttempts = 5, 1
	e.update(a, list)
	e.settings(a, list)
	e.settings(a, sub)
	e.refused(b, old, messaging.ErrConflict)
	ev := e.event("adm.letter")
	e.bury(b, src, ev)
	e.retry(e.noticed(letters, "Update", func(d *messaging.Delivery) bool { return d.Info.MaxAttempts == 1 }), 0)
	e.quiet(letters, e.absence()/2)
	e.counts(a, sub, counted{letters: 1})
}

func adm4Expires(e *env) {
	b, a := e.openAdmin()
	sub := e.short() // a server may wait for it, too
	src := e.subscribe(b, sub)
	ev := e.event("adm.expires")
	e.publish(b, ev)
	old := sub
	sub.Expires = 2 * e.AckWait
	e.update(a, sub)
	e.settings(a, sub)
	e.refused(b, old, messaging.ErrConflict)
	e.pause(2 * sub.Expires) // it has a member
	e.accept(src, ev)
	e.closing(src)
	closed := time.Now()
	if e.Bubble {
		e.pause(sub.Expires - 1)
		e.settings(a, sub)
		e.pause(1)
	}
	for end := closed.Add(sub.Expires + e.Slack + e.prompt()); ; e.pause(e.AckWait / 4) {
		if _, ok := e.listed(a, sub); !ok {
			break
		}
		if e.Bubble && time.Since(closed) >= sub.Expires+e.Slack || time.Now().After(end) {
			e.failf("the subscription still exists %v after its last member closed, with Expires %v since an Update", time.Since(closed), sub.Expires)
		}
	}

	sub = e.sub()
	sub.Expires = e.AckWait
	src = e.subscribe(b, sub)
	sub.Expires = 0
	e.update(a, sub)
	e.accept(src, ev)
	e.closing(src)
	e.pause(3*e.AckWait + e.Slack)
	src = e.subscribe(b, sub)
	e.fence(b, src, "adm.expires")
}

func adm4Unsupported(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	e.subscribe(b, sub)
	other := sub
	other.Expires, other.MaxInFlight = time.Hour, 7
	e.is(e.tryUpdate(a, other), errors.ErrUnsupported, "Update to Expires")
	e.settings(a, sub)
}

// An Update that is refused changes nothing.
func adm4Invalid(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.valid")
	sub.MaxInFlight, sub.MaxAttempts = 5, 5
	src := e.subscribe(b, sub)
	events := e.events(3, "adm.valid")
	e.publish(b, events...)
	e.accept(src, events[0])
	d := e.expect(src, events[1], 1)
	for _, change := range []func(*messaging.Subscription){
		func(s *messaging.Subscription) { s.AckWait = -1 },
		func(s *messaging.Subscription) { s.MaxInFlight = -1 },
		func(s *messaging.Subscription) { s.MaxAttempts = -1 },
		func(s *messaging.Subscription) { s.Expires = -1 },
		func(s *messaging.Subscription) { s.Types = []string{"adm.>.valid"} },
		func(s *messaging.Subscription) { s.Types = []string{"adm.valid", ""} },
		func(s *messaging.Subscription) { s.Types = make([]string, messaging.MaxTypes+1) },
	} {
		other := sub
		other.MaxInFlight, other.MaxAttempts = 6, 6
		change(&other)
		e.is(e.tryUpdate(a, other), messaging.ErrInvalid, "Update(%+v)", other)
	}
	e.settings(a, sub)
	e.closing(e.subscribe(b, sub))
	e.ack(d)
	e.accept(src, events[2])
	e.fence(b, src, "adm.valid")
}

// A Receive that waits gets events of a type that is added.
func adm4Waiting(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.kept")
	src := e.subscribe(b, sub)
	before, after := e.event("adm.added"), e.event("adm.added")
	waiting := e.async(func() {
		for d := e.receive(src); ; d = e.receive(src) {
			e.ack(d)
			if d.Value.ID() == after.ID() {
				return
			}
		}
	})
	e.pause(e.AckWait / 50)
	e.publish(b, before)
	e.pause(e.AckWait / 50)
	sub.Types = []string{"adm.kept", "adm.added"}
	e.update(a, sub)
	e.publish(b, after)
	waiting()
}

// Start is not among what Update changes.
func adm4Start(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	e.subscribe(b, sub)
	next := sub
	next.MaxInFlight, next.Start = 7, messaging.StartNew()
	e.update(a, next)
	e.told(a, sub, "the Start that it was made with", func(s messaging.Status) bool { return s.Start == sub.Start })
}

// What is out, or backs off, is kept as it is, also when its type is not selected
// any more.
func adm4Out(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.one")
	src := e.subscribe(b, sub)
	events := e.events(2, "adm.one")
	e.publish(b, events...)
	d := e.expect(src, events[0], 1)
	from, due := e.retryAfter(e.expect(src, events[1], 1), 2*e.AckWait)
	sub.MaxInFlight = 7
	e.update(a, sub)
	e.ack(e.again(src, events[1], 2, from, due))
	sub.Types = []string{"adm.two"}
	e.update(a, sub)
	e.reject(d, "for a test")
	e.deadLetter(e.subscribe(b, e.dead(sub)), events[0])
}

// The current position is past what did not match before, also at the end of the log.
func adm4Tail(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.kept")
	src := e.subscribe(b, sub)
	kept, added := e.events(2, "adm.kept"), e.events(2, "adm.added")
	e.publish(b, kept[0], added[0])
	e.accept(src, kept[0])
	e.quiet(src, e.absence()/2)
	sub.Types = []string{"adm.kept", "adm.added"}
	e.update(a, sub)
	e.publish(b, added[1], kept[1])
	e.accept(src, added[1], kept[1])
}
