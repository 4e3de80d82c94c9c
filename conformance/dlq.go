package conformance

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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
	},
	"DLQ-3": {
		{name: "strict_order", do: dlq3, deadFull: true},
		{name: "others_go_on", do: dlq3Others, deadFull: true},
	},
	"DLQ-4": {
		{name: "work_list", do: dlq4},
		{name: "failing", do: dlq4Failing},
		{name: "identity", do: dlq4Identity},
		{name: "separate", do: dlq4Separate},
		{name: "until_a_seek", do: adm2Letters},
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
	sub.MaxAttempts = 2
	ev := e.event("dlq.restart")
	e.publish(b, ev)
	for n := range 4 {
		src := e.subscribe(b, sub)
		d := e.receiveUntil(src, time.Now().Add(2*e.AckWait+e.Slack+e.prompt()/4))
		if d == nil {
			break
		}
		if n == sub.MaxAttempts {
			e.failf("event %s arrived %d times, each followed by a restart, with MaxAttempts %d", ev.ID(), n+1, sub.MaxAttempts)
		}
		if d.Info.Attempt > sub.MaxAttempts {
			e.failf("event %s arrived with attempt %d, with MaxAttempts %d", ev.ID(), d.Info.Attempt, sub.MaxAttempts)
		}
		b = e.restart(b)
	}
	src := e.subscribe(b, sub)
	if d := e.receiveUntil(src, time.Now().Add(2*e.AckWait+e.Slack)); d != nil {
		e.reject(d, "for a test")
	}
	e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
	b = e.restart(b)
	e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
}

func dlq2(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxAttempts = 3
	src := e.subscribe(b, sub)
	rejected, failed := e.full("dlq.unchanged"), e.full("dlq.unchanged")
	rejected.SetExtension("reason", "an extension, not an annotation")
	withData("application/octet-stream", "\x00\xff")(&rejected)
	e.publish(b, e.event("dlq.other"), rejected)
	e.ack(e.receive(src))
	if _, ok := messaging.DeadLetterFrom((e.expect(src, rejected, 1)).Info); ok {
		e.failf("DeadLetterFrom finds a dead letter in a delivery from the log")
	}
	e.closing(src)
	src = e.subscribe(b, sub)

	type death struct {
		event         event.Event
		info          reactor.Info
		before, after time.Time
		attempts      int
		reason        string
	}
	var deaths []death
	d := e.expect(src, rejected, 1)
	vandalise(&d.Value)
	e.retry(d, 0)
	d = e.expect(src, rejected, 2)
	before := time.Now()
	e.reject(d, "no good")
	deaths = append(deaths, death{rejected, d.Info, before, time.Now(), 2, "no good"})
	e.publish(b, failed)
	e.retry(e.expect(src, failed, 1), 0)
	e.retry(e.expect(src, failed, 2), 0)
	d = e.expect(src, failed, 3)
	before = time.Now()
	ctx, cancel := e.settling("Retry")
	e.ok(d.Settle(ctx, reactor.Outcome{Result: reactor.Retried, Reason: "the last straw"}), "Retry with a reason")
	cancel()
	deaths = append(deaths, death{failed, d.Info, before, time.Now(), 3, "the last straw"})

	dead := e.subscribe(b, e.dead(sub))
	var letters []*messaging.Delivery
	for _, w := range deaths {
		d, _ := e.deadLetter(dead, w.event)
		e.attempt(d, 1)
		letters = append(letters, d)
	}
	for i, w := range deaths {
		d := letters[i]
		letter, _ := messaging.DeadLetterFrom(d.Info)
		switch {
		case letter.Subscription != sub.Name:
			e.failf("the dead letter is of the subscription %q, want %q", letter.Subscription, sub.Name)
		case letter.Reason != w.reason:
			e.failf("the dead letter has the reason %q, want %q", letter.Reason, w.reason)
		case letter.Attempts != w.attempts:
			e.failf("the dead letter has Attempts %d, want %d", letter.Attempts, w.attempts)
		case letter.Sequence != w.info.Sequence:
			e.failf("the dead letter has the sequence %d, its event had %d", letter.Sequence, w.info.Sequence)
		case !letter.Stored.Equal(w.info.Stored):
			e.failf("the dead letter has the storing time %v, its event had %v", letter.Stored, w.info.Stored)
		case letter.Died.Before(w.before.Add(-e.clocks())), letter.Died.After(w.after.Add(e.clocks())):
			e.failf("the dead letter died at %v, want %v to %v", letter.Died, w.before, w.after)
		}
		e.retry(d, 0)
		again, letterAgain := e.deadLetter(dead, w.event)
		e.attempt(again, 2)
		if letterAgain != letter {
			e.failf("the dead letter was %+v, and at its second delivery %+v", letter, letterAgain)
		}
		e.ack(again)
	}
	e.quiet(dead, e.absence())
}

// clocks is by how much two clocks may differ.
func (e *env) clocks() time.Duration {
	if e.Bubble {
		return 0
	}
	return time.Second
}

func dlq2Reason(e *env) {
	b := e.open()
	sub := e.sub()
	src := e.subscribe(b, sub)
	dead := e.subscribe(b, e.dead(sub))
	for _, reason := range []string{
		"", "plain", "quotes \" and percent % %41", "ünïcödé 🎉", " spaces ", "line\nfeed\r\nand: colon", "nul\x00bell\x07del\x7f", "c1\u0085\u009f",
		"not\xffUTF\xc3-8", strings.Repeat("x", 1024), strings.Repeat("x", 1025), strings.Repeat("x", 100_000), strings.Repeat("ü", 600),
		strings.Repeat("🎉", 300), strings.Repeat("\x00", 2000), strings.Repeat("\xff", 2000),
	} {
		ev := e.event("dlq.reason")
		e.publish(b, ev)
		e.reject(e.expect(src, ev, 1), reason)
		d, letter := e.deadLetter(dead, ev)
		got := letter.Reason
		switch {
		case len(got) > 1024:
			e.failf("a dead letter has a reason of %d bytes", len(got))
		case !utf8.ValidString(got):
			e.failf("the reason %.50q became %.50q, which is not valid UTF-8", reason, got)
		case strings.ContainsFunc(got, unicode.IsControl):
			e.failf("the reason %.50q became %.50q, which has control characters", reason, got)
		case utf8.ValidString(reason) && !strings.ContainsFunc(reason, unicode.IsControl) && len(reason) <= 1024 && got != reason:
			e.failf("the reason %.50q became %.50q", reason, got)
		case len(reason) > 1024 && len(got) < 1000 && utf8.ValidString(reason) && !strings.Contains(reason, "\x00"):
			e.failf("a reason of %d bytes was cut to %d", len(reason), len(got))
		}
		e.ack(d)
	}
}

// burial is how long it may take an event to join the dead letters once there
// is room: it is tried again and again, less often as time goes by.
const burial = time.Minute

// While an event cannot join the dead letters nobody gets it, and in strict
// order nobody gets the next; then it does, once.
func dlq3(e *env) {
	for what, kill := range map[string]func(messaging.Source, event.Event){
		"a reject": func(src messaging.Source, ev event.Event) {
			_ = e.tryReject(e.expect(src, ev, 1)) // it may say so, or not
		},
		"the last retry": func(src messaging.Source, ev event.Event) {
			e.retry(e.expect(src, ev, 1), 0)
			ctx, cancel := e.settling("Retry")
			defer cancel()
			_ = e.expect(src, ev, 2).Retry(ctx, 0)
		},
		"the last loss": func(src messaging.Source, ev event.Event) {
			d := e.lost(src, e.expect(src, ev, 1), ev, 2)
			e.quiet(src, time.Until(d.Deadline()))
		},
	} {
		b, room := e.deadFull()
		sub := e.sub()
		if what == "the last loss" {
			sub = e.short()
		}
		sub.MaxInFlight, sub.MaxAttempts = 1, 2
		var told losses
		src, other := e.subscribeReport(b, sub, told.report), e.subscribeReport(b, sub, told.report)
		e.closing(other)
		events := e.events(3, "dlq.full")
		e.publish(b, events...)
		kill(src, events[0])
		other = e.subscribeReport(b, sub, told.report)
		wait := max(e.absence(), 2*e.AckWait+e.Slack)
		waiting := e.async(func() { e.quiet(other, wait) })
		e.quiet(src, wait)
		waiting()
		e.closing(other)
		told.mu.Lock()
		n := len(told.errs)
		told.mu.Unlock()
		if n == 0 || n > 100 {
			e.failf("after %s the report was told %d times within %v that an event cannot join the dead letters", what, n, wait)
		}
		e.begin("room for dead letters")
		room()
		d := e.receiveUntil(src, time.Now().Add(burial))
		if d == nil {
			e.failf("after %s nothing arrived within %v of there being room for it with the dead letters", what, burial)
		}
		e.same(d, events[1])
		e.attempt(d, 1)
		list := e.subscribe(b, e.dead(sub))
		_, letter := e.deadLetter(list, events[0])
		if want := map[bool]int{true: 1, false: 2}[what == "a reject"]; letter.Attempts != want {
			e.failf("after %s the dead letter has Attempts %d, want %d", what, letter.Attempts, want)
		}
		e.ack(d)
		e.accept(src, events[2])
		e.fence(b, src, "dlq.full")
		e.quiet(list, e.absence())
	}
}

// The event that waits is out, and counts as such; others go on.
func dlq3Others(e *env) {
	b, room := e.deadFull()
	sub := e.sub()
	sub.MaxInFlight = 3
	src := e.subscribeReport(b, sub, func(context.Context, error) {})
	events := e.events(8, "dlq.full")
	e.publish(b, events...)
	d := e.expect(src, events[0], 1)
	next := []*messaging.Delivery{e.expect(src, events[1], 1), e.expect(src, events[2], 1)}
	_ = e.tryReject(d)
	e.quiet(src, e.absence()/2)
	e.ack(next[0])
	e.ack(e.expect(src, events[3], 1))
	e.expect(src, events[4], 1)
	e.quiet(src, e.absence()/2)
	room()
	last := e.receiveUntil(src, time.Now().Add(burial))
	if last == nil {
		e.failf("nothing arrived within %v of there being room for the dead letter", burial)
	}
	e.same(last, events[5])
	e.deadLetter(e.subscribe(b, e.dead(sub)), events[0])
	e.quiet(src, e.absence()/2)
}

func (e *env) tryReject(d *messaging.Delivery) error {
	ctx, cancel := e.settling("Reject")
	defer cancel()
	return d.Reject(ctx, "for a test")
}

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
	e.publish(b, events...)
	for _, ev := range events {
		e.reject(e.expect(src, ev, 1), "for a test")
	}
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
