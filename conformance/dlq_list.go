package conformance

import (
	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

func dlq4(e *env) {
	b := e.open()
	sub := e.sub()
	e.refused(b, e.dead(sub), messaging.ErrNotFound)
	src := e.subscribe(b, sub)
	events := e.events(6, "dlq.list")
	events[2].SetType("dlq.other")
	e.publish(b, events...)
	one := e.dead(sub)
	list := e.subscribe(b, one) // while there are none
	for _, ev := range events[:4] {
		e.reject(e.expect(src, ev, 1), "for a test")
	}
	d, _ := e.deadLetter(list, events[0])
	e.ack(d)
	e.deadLetter(list, events[1])
	e.closing(list) // gives it back
	list = e.subscribe(b, one)
	held := e.deadLetters(list, events[1:4]...)
	e.ack(held[0])
	e.release(held[1])
	e.release(held[2])

	// Who comes later does not see what was acked, ...
	late := e.dead(sub)
	other := e.subscribe(b, late)
	for _, ev := range events[2:4] {
		d, _ = e.deadLetter(other, ev)
		e.attempt(d, 1)
	}
	e.quiet(other, e.absence()/2)
	e.closing(other)
	d, _ = e.deadLetter(e.subscribe(b, e.dead(sub, "dlq.other")), events[2])
	e.release(d)
	// ... and what dies later comes to all.
	for _, ev := range events[4:] {
		e.reject(e.expect(src, ev, 1), "for a test")
	}
	fresh := e.subscribe(b, e.dead(sub))
	for _, ev := range events[2:] {
		e.deadLetter(fresh, ev)
	}
	e.closing(src) // the subscription needs no member for its dead letters
	for _, d := range e.deadLetters(list, events[2:]...) {
		e.ack(d)
	}
	e.quiet(e.subscribe(b, e.dead(sub)), e.absence()/2)
	conflict := one
	conflict.MaxInFlight = 7
	e.refused(b, conflict, messaging.ErrConflict)
}

// A dead letter that is rejected, or that fails too often, stays in the list
// and is done with for that subscription.
func dlq4Failing(e *env) {
	b := e.open()
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(3, "dlq.failing")
	e.bury(b, src, events...)
	one := e.dead(sub)
	one.MaxAttempts = 2
	list := e.subscribe(b, one)
	letters := e.deadLetters(list, events...)
	e.reject(letters[0], "again")
	e.ack(letters[2])
	e.retry(letters[1], 0)
	d, _ := e.deadLetter(list, events[1])
	e.attempt(d, 2)
	e.retry(d, 0)
	e.quiet(list, e.absence())
	e.closing(list)
	list = e.subscribe(b, one)
	e.quiet(list, e.absence()/2)

	other := e.subscribe(b, e.dead(sub))
	for _, ev := range events[:2] {
		d, letter := e.deadLetter(other, ev)
		if letter.Reason != "for a test" {
			e.failf("a dead letter that was rejected has the reason %q, and died of %q", letter.Reason, "for a test")
		}
		e.ack(d)
	}
	e.quiet(other, e.absence()/2)
}

// A subscription is known by its name together with whose dead letters it
// reads; and dead letters have none of their own.
func dlq4Identity(e *env) {
	b := e.open()
	one, two := e.sub("dlq.one"), e.sub("dlq.two")
	src1, src2 := e.subscribe(b, one), e.subscribe(b, two)
	ev1, ev2 := e.event("dlq.one"), e.event("dlq.two")
	e.publish(b, ev1, ev2)
	deadOf1, deadOf2, same := e.dead(one), e.dead(two), e.dead(one)
	deadOf2.Name = deadOf1.Name
	same.Name = one.Name
	same.MaxInFlight = 7
	list1, list2, list3 := e.subscribe(b, deadOf1), e.subscribe(b, deadOf2), e.subscribe(b, same)
	e.reject(e.expect(src1, ev1, 1), "for a test")
	e.reject(e.expect(src2, ev2, 1), "for a test")
	e.deadLetter(list3, ev1)
	e.deadLetter(list1, ev1)
	e.deadLetter(list2, ev2)
	e.quiet(list1, e.absence()/2)
	e.quiet(list2, e.absence()/2)

	nested := e.dead(deadOf1) // there is no subscription of that name with the log
	e.refused(b, nested, messaging.ErrNotFound)
	plain := e.sub()
	plain.Name = deadOf1.Name
	src := e.subscribe(b, plain)
	e.accept(src, ev1, ev2)
}

// Handling dead letters publishes nothing, and no other subscription has them.
func dlq4Separate(e *env) {
	b := e.open()
	sub := e.sub()
	src, bystander := e.subscribe(b, sub), e.subscribe(b, e.sub())
	ev := e.event("dlq.separate")
	e.publish(b, ev)
	e.accept(bystander, ev)
	e.reject(e.expect(src, ev, 1), "for a test")
	other := e.sub()
	e.given("from the dead letters of a subscription that has none")
	e.quiet(e.subscribe(b, e.deadOf(b, other)), e.absence()/4)
	e.given("")

	list := e.subscribe(b, e.dead(sub))
	var handled calls
	r := e.start(list, handled.handler, nil)
	e.await("the dead letter", func() bool { return handled.len() == 1 })
	r.stop()
	e.fence(b, src, "dlq.separate")
	e.quiet(src, e.absence()/2)
	if d := e.receive(bystander); d.Value.ID() == ev.ID() {
		e.failf("handling a dead letter published it again")
	}
	e.quiet(e.subscribe(b, e.dead(sub)), e.absence()/2)
}

// died makes dead letters at different times, beside events that are none.
func (e *env) died(b Broker, n int) (messaging.Subscription, messaging.Source, []event.Event) {
	sub := e.sub()
	src := e.subscribe(b, sub)
	e.publish(b, e.events(10, "dlq.other")...)
	e.collect(10, src)
	events := e.events(n, "dlq.start")
	e.publish(b, events...)
	for _, ev := range events {
		e.reject(e.expect(src, ev, 1), "for a test")
		e.tick()
	}
	return sub, src, events
}

// Start is a place among the dead letters, as it is one in the log elsewhere.
func dlq4New(e *env) {
	b := e.open()
	sub, src, _ := e.died(b, 3)
	list := e.dead(sub)
	list.Start = messaging.StartNew()
	fresh := e.subscribe(b, list)
	ev := e.event("dlq.start")
	e.bury(b, src, ev)
	e.deadLetter(fresh, ev)
	e.quiet(fresh, e.absence()/2)
}

func dlq4Positions(e *env) {
	b := e.open()
	sub, _, events := e.died(b, 6)
	list := e.subscribe(b, e.dead(sub))
	var ds []*messaging.Delivery
	for _, ev := range events {
		d, _ := e.deadLetter(list, ev)
		ds = append(ds, d)
	}
	e.ack(ds[3])
	rest := []int{0, 1, 2, 4, 5}
	for i, d := range ds {
		for _, start := range []messaging.Start{messaging.StartFrom(d.Info.Sequence), messaging.StartAt(d.Info.Stored)} {
			other := e.dead(sub)
			other.Start = start
			src := e.subscribe(b, other)
			e.given("with %v, the place of dead letter %d of 6", start, i+1)
			for _, j := range rest {
				if j >= i {
					e.deadLetter(src, events[j])
				}
			}
			e.closing(src)
		}
	}
}

// They outlast their originals [RET-3].
func dlq4Discards(e *env) {
	b := e.discarding(3)
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(10, "dlq.bound")
	e.publish(b, events[0])
	e.reject(e.expect(src, events[0], 1), "for a test")
	for _, ev := range events[1:] {
		e.publish(b, ev)
		e.accept(src, ev)
	}
	e.deadLetter(e.subscribe(b, e.dead(sub)), events[0])
}

// A subscription that was deleted, and left none, is no such subscription.
func dlq4Deleted(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	e.closing(e.subscribe(b, sub))
	e.delete(a, sub)
	e.refused(b, e.dead(sub), messaging.ErrNotFound)
}

// One that is acked comes to nobody who has not received it.
func dlq4Removed(e *env) {
	b := e.open()
	sub, _, events := e.died(b, 4)
	one := e.dead(sub)
	one.MaxInFlight = 1
	list := e.subscribe(b, one)
	held, _ := e.deadLetter(list, events[0])
	others := e.deadLetters(e.subscribe(b, e.dead(sub)), events...)
	e.ack(others[1])
	e.ack(others[2])
	e.reject(held, "again") // it stays
	e.deadLetter(list, events[3])
	e.quiet(list, e.absence()/2)
}
