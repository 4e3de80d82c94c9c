package conformance

import (
	"slices"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

var dlqChecks = map[string][]check{
	"DLQ-1": {
		{name: "at_the_cap", do: dlq1},
		{name: "ack_wait", do: dlq1AckWait},
		{name: "releases", do: dlq1Releases},
		{name: "across_members", do: dlq1Members},
		{name: "restart", do: dlq1Restart, needs: Durable, restart: true},
	},
	"DLQ-2": {
		{name: "unchanged", do: dlq2},
		{name: "reason", do: dlq2Reason},
		{name: "reason_of_the_last", do: dlq2Last},
		{name: "reason_of_a_lost", do: dlq2Lost},
		{name: "injected", do: dlq2Injected, inject: true},
	},
	"DLQ-3": {
		{name: "strict_order", do: dlq3, deadFull: true},
		{name: "others_go_on", do: dlq3Others, deadFull: true},
		{name: "update", do: dlq3Update, deadFull: true},
		{name: "closed_meanwhile", do: dlq3Closed, deadFull: true},
	},
	"DLQ-4": {
		{name: "work_list", do: dlq4},
		{name: "failing", do: dlq4Failing},
		{name: "identity", do: dlq4Identity},
		{name: "separate", do: dlq4Separate},
		{name: "until_a_seek", do: adm2Letters},
		{name: "start_new", do: dlq4New},
		{name: "positions", do: dlq4Positions, needs: Positions},
		{name: "log_discards", do: dlq4Discards, discards: true},
		{name: "of_one_deleted", do: dlq4Deleted},
		{name: "removed_by_another", do: dlq4Removed},
	},
}

// dead returns the settings of a new subscription with dead letters.
func (e *env) dead(of messaging.Subscription, types ...string) messaging.Subscription {
	sub := e.sub(types...)
	sub.DeadLettersOf = of.Name
	return sub
}

// deadLetter receives a dead letter, which must be of that event.
func (e *env) deadLetter(src messaging.Source, want event.Event) (*messaging.Delivery, messaging.DeadLetter) {
	d := e.receiveUntil(src, time.Now().Add(e.prompt()))
	if d == nil {
		e.failf("event %s did not arrive as a dead letter within %v", want.ID(), e.prompt())
	}
	e.same(d, want)
	letter, ok := messaging.DeadLetterFrom(d.Info)
	if !ok {
		e.failf("event %s arrived from a subscription with DeadLettersOf, but DeadLetterFrom finds nothing in its Info.Annotations %q", want.ID(), d.Info.Annotations)
	}
	return d, letter
}

// bury publishes events, and rejects each as src receives it.
func (e *env) bury(b Broker, src messaging.Source, events ...event.Event) {
	e.publish(b, events...)
	for _, ev := range events {
		e.reject(e.expect(src, ev, 1), "for a test")
	}
}

// deadLetters receives the dead letters of those events in any order, and
// returns them in the order of the events.
func (e *env) deadLetters(src messaging.Source, events ...event.Event) []*messaging.Delivery {
	out := make([]*messaging.Delivery, len(events))
	for range events {
		d := e.receive(src)
		i := slices.IndexFunc(events, func(ev event.Event) bool { return ev.ID() == d.Value.ID() })
		if i < 0 || out[i] != nil {
			e.failf("event %s arrived as a dead letter, and is none, or is one too many", d.Value.ID())
		}
		e.same(d, events[i])
		out[i] = d
	}
	return out
}

func dlq1(e *env) {
	b := e.open()
	for _, n := range []int{1, 2, 5} {
		sub := e.sub("dlq.cap." + e.name())
		sub.MaxAttempts = n
		src, dead := e.subscribe(b, sub), e.subscribe(b, e.deadOf(b, sub))
		events := e.events(2, sub.Types[0])
		e.publish(b, events...)
		for i := 1; i <= n; i++ {
			d := e.expect(src, events[0], i)
			if d.Info.MaxAttempts != n || d.Info.Last() != (i == n) {
				e.failf("attempt %d of %d has Info.MaxAttempts %d, and Last is %v", i, n, d.Info.MaxAttempts, d.Info.Last())
			}
			if i == 1 {
				e.accept(src, events[1])
			}
			if i < n {
				e.retry(d, 0)
			} else {
				e.retry(d, e.long()/2) // it dies now, and not later
			}
		}
		d, letter := e.deadLetter(dead, events[0])
		if letter.Attempts != n {
			e.failf("a dead letter after %d failed deliveries has Attempts %d", n, letter.Attempts)
		}
		e.ack(d)
		e.quiet(src, e.absence())
		e.quiet(dead, e.absence()/4)
	}
}

// deadOf is dead of a subscription that exists: it is opened, and closed again.
func (e *env) deadOf(b Broker, sub messaging.Subscription) messaging.Subscription {
	e.closing(e.subscribe(b, sub))
	return e.dead(sub)
}

func dlq1AckWait(e *env) {
	b := e.open()
	sub := e.short()
	sub.MaxAttempts = 2
	src := e.subscribe(b, sub)
	ev := e.event("dlq.wait")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	d = e.lost(src, d, ev, 2)
	e.quiet(src, time.Until(d.Deadline())+e.Slack+e.AckWait)
	dead, letter := e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
	if letter.Attempts != 2 {
		e.failf("a dead letter after 2 lost deliveries has Attempts %d", letter.Attempts)
	}
	e.is(d.Ack(e.ctx), reactor.ErrLost, "Ack of the last delivery after the event died")
	e.ack(dead)

	// While nobody receives: the next who does buries it.
	sub = e.short("dlq.unseen")
	sub.MaxAttempts = 1
	src = e.subscribe(b, sub)
	ev = e.event("dlq.unseen")
	e.publish(b, ev)
	e.expect(src, ev, 1)
	e.pause(e.AckWait + e.Slack)
	e.closing(src)
	e.given("with MaxAttempts 1, when the AckWait of %q had run out unseen and its member had closed", ev.ID())
	src = e.subscribe(b, sub)
	e.fence(b, src, "dlq.unseen")
	e.quiet(src, e.AckWait)
	e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
}

func dlq1Releases(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxAttempts = 2
	src := e.subscribe(b, sub)
	ev := e.event("dlq.release")
	e.publish(b, ev)
	for i := range 5 {
		e.release(e.expect(src, ev, 1))
		if i%2 == 0 {
			e.expect(src, ev, 1)
			e.closing(src)
			e.given("when a member had closed with the event unsettled")
			src = e.subscribe(b, sub)
		}
	}
	e.retry(e.expect(src, ev, 1), 0)
	e.given("")
	for range 5 {
		e.release(e.expect(src, ev, 2))
	}
	dead := e.subscribe(b, e.dead(sub))
	e.quiet(dead, e.absence())
	e.retry(e.expect(src, ev, 2), 0)
	e.deadLetter(dead, ev)
	e.quiet(src, e.absence())
}

func dlq1Members(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxAttempts = 4
	ev := e.event("dlq.members")
	e.publish(b, ev)
	dead := e.subscribe(b, e.deadOf(b, sub))
	for n := 1; n <= 4; n++ {
		src := e.subscribe(b, sub)
		e.retry(e.expect(src, ev, n), 0)
		e.closing(src)
	}
	src := e.subscribe(b, sub)
	e.deadLetter(dead, ev)
	e.quiet(src, e.absence())
	e.fence(b, src, "dlq.members")
}

// A restart with an event in a member's hands may count as a failed delivery,
// or not. It loses nothing, and the cap holds.
func dlq1Restart(e *env) {
	b := e.open()
	sub := e.short()
	sub.MaxAttempts = 3
	ev := e.event("dlq.restart")
	e.publish(b, ev)
	src := e.subscribe(b, sub)
	e.retry(e.receive(src), 0)
	attempt := e.receive(src).Info.Attempt
	for {
		b = e.restart(b)
		d := e.receiveUntil(e.subscribe(b, sub), time.Now().Add(2*e.AckWait+e.Slack+e.prompt()/4))
		if d == nil {
			break
		}
		if got := d.Info.Attempt; got < attempt || got > attempt+1 || got > sub.MaxAttempts {
			e.failf("event %s was out with attempt %d of %d at a restart, and arrived with attempt %d", ev.ID(), attempt, sub.MaxAttempts, got)
		}
		if d.Info.Attempt == attempt { // it was given back
			e.reject(d, "for a test")
			break
		}
		attempt = d.Info.Attempt
	}
	e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
	b = e.restart(b)
	e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
}
