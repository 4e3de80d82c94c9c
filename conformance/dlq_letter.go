package conformance

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

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

func (e *env) retryFor(d *messaging.Delivery, reason string) {
	ctx, cancel := e.settling("Retry")
	defer cancel()
	e.ok(d.Settle(ctx, reactor.Outcome{Result: reactor.Retried, Reason: reason}), "Retry of event %s with a reason", d.Value.ID())
}

// secondDeath lets an event fail for a reason, and then in another way, of which it
// dies.
func (e *env) secondDeath(sub messaging.Subscription, fail func(src messaging.Source, d *messaging.Delivery)) messaging.DeadLetter {
	b := e.open()
	sub.MaxAttempts = 2
	src := e.subscribe(b, sub)
	ev := e.event("dlq.reason")
	e.publish(b, ev)
	e.retryFor(e.expect(src, ev, 1), "the first")
	fail(src, e.expect(src, ev, 2))
	_, letter := e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
	return letter
}

// The reason is that of the failure that it died of, also when that has none.
func dlq2Last(e *env) {
	letter := e.secondDeath(e.sub(), func(_ messaging.Source, d *messaging.Delivery) { e.retryFor(d, "") })
	if letter.Reason != "" {
		e.failf("the last failure had no reason, and the dead letter has %q", letter.Reason)
	}
}

func dlq2Lost(e *env) {
	letter := e.secondDeath(e.short(), func(src messaging.Source, d *messaging.Delivery) {
		e.quiet(src, time.Until(d.Deadline())+e.Slack+e.AckWait)
	})
	if letter.Reason == "the first" {
		e.failf("the last delivery was lost, and the dead letter has the reason of the first")
	}
}

// One that another client published is unchanged as well.
func dlq2Injected(e *env) {
	b := e.open()
	sub := e.sub()
	src := e.subscribe(b, sub)
	ev := e.event("dlq.injected")
	header, body := e.encoded(ev)
	e.injected(b, header, body)
	e.reject(e.expect(src, ev, 1), "for a test")
	e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
}

// An Update forgets nothing that cannot be buried yet.
func dlq3Update(e *env) {
	b, room := e.deadFull()
	a := e.admin(b)
	sub := e.sub()
	sub.MaxInFlight = 1
	src := e.subscribeReport(b, sub, func(context.Context, error) {})
	events := e.events(2, "dlq.full")
	e.publish(b, events...)
	_ = e.tryReject(e.expect(src, events[0], 1))
	sub.MaxAttempts = 7
	e.update(a, sub)
	e.quiet(src, e.absence())
	e.begin("room for dead letters")
	room()
	d := e.receiveUntil(src, time.Now().Add(burial))
	if d == nil {
		e.failf("nothing arrived within %v of there being room for the dead letter", burial)
	}
	e.same(d, events[1])
	e.deadLetter(e.subscribe(b, e.dead(sub)), events[0])
}

// Who closes before it could be buried neither gives it to another nor loses it.
func dlq3Closed(e *env) {
	b, room := e.deadFull()
	sub := e.sub()
	sub.MaxAttempts = 1
	src := e.subscribeReport(b, sub, func(context.Context, error) {})
	ev := e.event("dlq.full")
	e.publish(b, ev)
	if err := e.tryReject(e.expect(src, ev, 1)); err != nil {
		panic(skipped{"Reject of what cannot be buried says so, and the member keeps it"})
	}
	e.quiet(src, e.AckWait)
	e.begin("room for dead letters")
	room()
	e.closing(src)
	next, list := e.subscribe(b, sub), e.subscribe(b, e.dead(sub))
	var d *messaging.Delivery
	for end := time.Now().Add(burial); d == nil; d = e.receiveUntil(list, time.Now().Add(e.absence()/4)) {
		if time.Now().After(end) {
			e.failf("the event did not join the dead letters within %v of there being room", burial)
		}
		e.quiet(next, e.absence()) // who receives buries
	}
	e.same(d, ev)
	e.quiet(next, e.absence())
}
