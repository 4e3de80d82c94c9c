package conformance

import (
	"time"

	"github.com/catchment-events/catchment/messaging"
)

func ack9(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ev := e.event("ack.release")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	for range 5 {
		e.release(d)
		if e.Bubble {
			d = e.again(src, ev, 1, time.Time{}, time.Now())
		} else {
			d = e.expect(src, ev, 1)
		}
	}
	e.retry(d, 0)
	d = e.expect(src, ev, 2)
	for range 5 {
		e.release(d)
		d = e.expect(src, ev, 2)
	}
	// While somebody waits.
	redelivered := e.async(func() { e.ack(e.expect(src, ev, 2)) })
	e.release(d)
	redelivered()
	e.quiet(src, e.absence())
}

func ack9Member(e *env) {
	b := e.open()
	sub := e.sub()
	one, two := e.subscribe(b, sub), e.subscribe(b, sub)
	ev := e.event("ack.release")
	e.publish(b, ev)
	for i := range 4 {
		d, holder, other := e.either(one, two)
		e.same(d, ev)
		e.attempt(d, 1)
		e.release(d)
		if i == 3 {
			// The other one gets it, once this one does not want it any more.
			e.closing(holder)
			e.ack(e.expect(other, ev, 1))
			e.quiet(other, e.absence())
			return
		}
	}
}

// What is due again comes before what is new, but for what the member has
// fetched: it is not behind all that others have published.
func ack9Backlog(e *env) {
	e.dueFirst(func(d *messaging.Delivery) int {
		e.release(d)
		return 1
	})
}

func ack3Backlog(e *env) {
	e.dueFirst(func(d *messaging.Delivery) int {
		e.retry(d, 0)
		return 2
	})
	e.dueFirst(func(d *messaging.Delivery) int {
		_, due := e.retryAfter(d, e.AckWait/4)
		e.pause(time.Until(due.Add(e.Slack)))
		return 2
	})
}

// dueFirst gives events back, in the midst of a backlog, and expects each before
// MaxInFlight others.
func (e *env) dueFirst(giveBack func(*messaging.Delivery) (attempt int)) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 10
	src := e.subscribe(b, sub)
	e.publish(b, e.events(200, "ack.backlog")...)
	for range 4 {
		for range 15 {
			e.ack(e.receive(src))
		}
		d := e.receive(src)
		want := d.Value.ID()
		attempt := giveBack(d)
		for others := 0; ; others++ {
			d := e.receive(src)
			e.ack(d)
			if d.Value.ID() == want {
				e.attempt(d, attempt)
				break
			}
			if others == sub.MaxInFlight {
				e.failf("event %s was given back and is due, and %d others, which are new, arrived before it", want, others+1)
			}
		}
	}
}
