package conformance

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

var ackChecks = map[string][]check{
	"ACK-1": {
		{name: "not_again", do: ack1},
		{name: "closed_at_once", do: ack1Closed},
		{name: "restart", do: ack1Restart, needs: Durable | ConfirmedAck, restart: true},
		{name: "undone_by_seek", do: ack1Seek},
	},
	"ACK-2": {
		{name: "ack_wait", do: ack2},
		{name: "starts_at_receive", do: ack2Prefetched},
		{name: "many", do: ack2Many},
	},
	"ACK-3": {
		{name: "delays", do: ack3},
		{name: "others_go_on", do: ack3Others},
		{name: "at_once", do: ack3AtOnce},
		{name: "longest", do: ack3Longest},
		{name: "a_day", do: ack3Day, bubble: true, why: "it waits for 24 h"},
		{name: "backing_off_while_closed", do: ack3Closed},
		{name: "waited_for_before_close", do: ack3Reopened},
		{name: "before_a_backlog", do: ack3Backlog},
	},
	"ACK-4": {{name: "not_again", do: ack4}},
	"ACK-5": {
		{name: "deadline", do: ack5},
		{name: "refused", do: ack5Refused},
	},
	"ACK-6": {
		{name: "twice", do: ack6},
		{name: "at_once", do: ack6Concurrent},
		{name: "failed", do: ack6Failed},
	},
	"ACK-7": {
		{name: "late", do: ack7},
		{name: "closed", do: ack7Closed},
		{name: "at_the_deadline", do: ack7Fenced, needs: Fenced},
	},
	"ACK-8": {
		{name: "receiving_context_ended", do: ack8},
		{name: "with_a_context_that_has_ended", do: ack8Ended},
	},
	"ACK-9": {
		{name: "at_once", do: ack9},
		{name: "any_member", do: ack9Member},
		{name: "before_a_backlog", do: ack9Backlog},
	},
}

func ack1(e *env) {
	b := e.open()
	sub := e.short()
	src := e.subscribe(b, sub)
	events := e.events(6, "ack.done")
	e.publish(b, events...)
	var ds []*messaging.Delivery
	for _, ev := range events {
		ds = append(ds, e.expect(src, ev, 1))
	}
	for _, i := range []int{3, 0, 5, 1, 4, 2} {
		e.ack(ds[i])
	}
	e.quiet(src, 2*e.AckWait+e.Slack)
	e.closing(src)
	src = e.subscribe(b, sub)
	e.fence(b, src, "ack.done")
	e.quiet(src, e.AckWait)

	// After a retry, too.
	ev := e.event("ack.done")
	e.publish(b, ev)
	e.retry(e.expect(src, ev, 1), 0)
	e.ack(e.expect(src, ev, 2))
	e.quiet(src, 2*e.AckWait+e.Slack)
}

// An ack is not the worse for a Close that follows it.
func ack1Closed(e *env) {
	b := e.open()
	sub := e.sub()
	events := e.events(30, "ack.close")
	e.publish(b, events...)
	got := make(map[string]event.Event)
	for range events {
		src := e.subscribe(b, sub)
		maps.Copy(got, e.collect(1, src))
		e.closing(src)
	}
	e.contains(got, events)
	src := e.subscribe(b, sub)
	e.fence(b, src, "ack.close")
	e.quiet(src, e.absence())
}

func ack1Restart(e *env) {
	b := e.open()
	sub := e.short()
	events := e.events(30, "ack.restart")
	e.publish(b, events...)
	src := e.subscribe(b, sub)
	e.accept(src, events...)
	b = e.restart(b)
	src = e.subscribe(b, sub)
	e.fence(b, src, "ack.restart")
	e.quiet(src, 2*e.AckWait+e.Slack)
}

func ack3(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	ev := e.event("ack.retry")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	delays := []time.Duration{e.AckWait / 2, 3 * e.AckWait / 2}
	if e.Bubble {
		delays = append(delays, 1, time.Millisecond, e.AckWait-1, e.AckWait, e.AckWait+1, time.Hour)
	}
	for i, after := range delays {
		from, due := e.retryAfter(d, after)
		if e.Bubble {
			e.quiet(src, after)
		}
		d = e.again(src, ev, i+2, from, due)
	}
	e.ack(d)
	e.quiet(src, e.AckWait)
}

// Events that wait for their retries hold nothing up, and come when each is
// due, not in the order in which they were retried.
func ack3Others(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	events := e.events(40, "ack.others")
	e.publish(b, events[:20]...)
	type wait struct {
		event     event.Event
		from, due time.Time
	}
	var waits []wait
	for i, ev := range events[:4] {
		after := time.Duration(4-i) * e.AckWait / 2
		from, due := e.retryAfter(e.expect(src, ev, 1), after+e.AckWait)
		waits = append(waits, wait{ev, from, due})
	}
	e.accept(src, events[4:20]...)
	e.publish(b, events[20:]...)
	e.accept(src, events[20:]...)
	for i := range waits {
		w := waits[len(waits)-1-i]
		e.ack(e.again(src, w.event, 2, w.from, w.due))
	}
}

func ack3AtOnce(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ev := e.event("ack.now")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	for i, after := range []time.Duration{0, -1, -time.Hour, 0, -1 << 63} {
		e.retry(d, after)
		if e.Bubble {
			d = e.again(src, ev, i+2, time.Time{}, time.Now())
		} else {
			d = e.expect(src, ev, i+2)
		}
	}
	// While somebody waits.
	redelivered := e.async(func() { e.ack(e.expect(src, ev, 7)) })
	e.retry(d, 0)
	redelivered()
}

func ack3Longest(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	events := e.events(2, "ack.longest")
	e.publish(b, events...)
	d, kept := e.expect(src, events[0], 1), e.expect(src, events[1], 1)
	for _, after := range []time.Duration{reactor.MaxRetryDelay + 1, 1<<63 - 1} {
		if err := d.Retry(e.ctx, after); err == nil {
			e.failf("Retry after %v was accepted: 24 h is the longest delay", after)
		}
	}
	e.quiet(src, e.absence()/2)
	e.ack(d)
	e.retry(kept, reactor.MaxRetryDelay)
	e.quiet(src, e.absence()/2)
	e.fence(b, src, "ack.longest")
}

func ack3Day(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ev := e.event("ack.day")
	e.publish(b, ev)
	from, due := e.retryAfter(e.expect(src, ev, 1), reactor.MaxRetryDelay)
	e.quiet(src, reactor.MaxRetryDelay)
	e.ack(e.again(src, ev, 2, from, due))
}

// An event whose retry is due while nobody is there, and one that is due later.
func ack3Closed(e *env) {
	b := e.open()
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(3, "ack.backoff")
	e.publish(b, events...)
	e.retry(e.expect(src, events[0], 1), e.AckWait/4)
	from, due := e.retryAfter(e.expect(src, events[1], 1), 2*e.AckWait)
	e.accept(src, events[2])
	e.closing(src)
	e.pause(e.AckWait / 2)
	src = e.subscribe(b, sub)
	e.ack(e.expect(src, events[0], 2))
	e.ack(e.again(src, events[1], 2, from, due))
	e.quiet(src, e.absence())
}

func ack4(e *env) {
	b := e.open()
	sub := e.short()
	src := e.subscribe(b, sub)
	events := e.events(3, "ack.reject")
	e.publish(b, events...)
	for i, reason := range []string{"no good", "", "\x00\xff" + text} {
		e.reject(e.expect(src, events[i], 1), reason)
	}
	e.quiet(src, 2*e.AckWait+e.Slack)
	e.closing(src)
	src = e.subscribe(b, sub)
	e.fence(b, src, "ack.reject")
	e.quiet(src, e.AckWait)
	dead := e.subscribe(b, messaging.Subscription{Name: e.name(), DeadLettersOf: sub.Name, AckWait: e.long()})
	for _, ev := range events {
		d := e.receive(dead)
		e.same(d, ev)
		e.ack(d)
	}
}

// settles are the ways to settle, by name.
var settles = []struct {
	name   string
	settle func(*messaging.Delivery, context.Context) error
}{
	{"Ack", func(d *messaging.Delivery, ctx context.Context) error { return d.Ack(ctx) }},
	{"Retry", func(d *messaging.Delivery, ctx context.Context) error { return d.Retry(ctx, 0) }},
	{"Reject", func(d *messaging.Delivery, ctx context.Context) error { return d.Reject(ctx, "for a test") }},
	{"Release", func(d *messaging.Delivery, ctx context.Context) error { return d.Release(ctx) }},
}

func ack6(e *env) {
	b := e.open()
	for _, first := range settles {
		src := e.subscribe(b, e.sub("ack.twice."+first.name))
		ev := e.event("ack.twice." + first.name)
		e.publish(b, ev)
		d := e.expect(src, ev, 1)
		switch first.name {
		case "Retry":
			from, due := e.retryAfter(d, e.AckWait/2)
			e.again6(d, first.name)
			d = e.again(src, ev, 2, from, due)
			e.ack(d)
		case "Release":
			e.release(d)
			e.again6(d, first.name)
			d = e.expect(src, ev, 1)
			e.ack(d)
		default:
			e.ok(first.settle(d, e.ctx), "%s", first.name)
		}
		e.again6(d, first.name)
		e.quiet(src, e.absence()/2)
	}
}

// again6 settles in every way a delivery that is settled.
func (e *env) again6(d *messaging.Delivery, before string) {
	for _, s := range settles {
		e.is(s.settle(d, e.ctx), reactor.ErrSettled, "%s of a delivery after %s", s.name, before)
	}
}

// Of settles that race one is made, and the event's fate is that one's.
func ack6Concurrent(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 1
	src := e.subscribe(b, sub)
	for range 20 {
		ev := e.event("ack.race")
		e.publish(b, ev)
		d := e.expect(src, ev, 1)
		errs := make([]error, len(settles))
		var waits []func()
		for i, s := range settles {
			waits = append(waits, e.async(func() { errs[i] = s.settle(d, e.ctx) }))
		}
		for _, wait := range waits {
			wait()
		}
		made := -1
		for i, err := range errs {
			switch {
			case err == nil && made >= 0:
				e.failf("%s and %s of one delivery both returned nil", settles[made].name, settles[i].name)
			case err == nil:
				made = i
			default:
				e.is(err, reactor.ErrSettled, "%s of a delivery that is settled at the same time", settles[i].name)
			}
		}
		switch {
		case made < 0:
			e.failf("of four settles at a time none was made: %v", errs)
		case settles[made].name == "Retry":
			e.ack(e.expect(src, ev, 2))
		case settles[made].name == "Release":
			e.ack(e.expect(src, ev, 1))
		}
	}
	e.fence(b, src, "ack.race")
}

func ack6Failed(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	ev := e.event("ack.failed")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	if err := d.Retry(e.ctx, reactor.MaxRetryDelay+1); err == nil || errors.Is(err, reactor.ErrSettled) || errors.Is(err, reactor.ErrLost) {
		e.failf("Retry after more than 24 h returned %v", err)
	}
	// Waiting for a confirmation may fail; the settle is then repeated.
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	if err := d.Ack(done); err != nil {
		e.is(err, context.Canceled, "Ack with a context that is done")
		e.ack(d)
	}
	e.is(d.Ack(e.ctx), reactor.ErrSettled, "Ack of a delivery after Ack")
	e.quiet(src, 2*e.AckWait+e.Slack)
}

func ack8(e *env) { e.settlesLater(e.settling) }

// The context of a settle bounds a wait for confirmation, and may have ended.
func ack8Ended(e *env) {
	e.settlesLater(func(step string) (context.Context, context.CancelFunc) {
		ctx, cancel := e.settling(step)
		cancel()
		return ctx, cancel
	})
}

// settlesLater settles in each way, when the context of Receive has ended.
func (e *env) settlesLater(settling func(step string) (context.Context, context.CancelFunc)) {
	b := e.open()
	src := e.subscribe(b, e.short())
	events := e.events(len(settles), "ack.ended")
	e.publish(b, events...)
	var ds []*messaging.Delivery
	for range events {
		ctx, cancel := context.WithTimeout(e.ctx, e.prompt())
		d, err := src.Receive(ctx)
		cancel()
		e.ok(err, "Receive")
		ds = append(ds, d)
	}
	e.quiet(src, e.AckWait/4) // nothing was given back by that
	for i, s := range settles {
		ctx, cancel := settling(s.name)
		e.ok(s.settle(ds[i], ctx), "%s after the receiving context has ended", s.name)
		cancel()
	}
	for range 2 {
		d := e.receive(src)
		switch d.Value.ID() {
		case events[1].ID():
			e.attempt(d, 2)
		case events[3].ID():
			e.attempt(d, 1)
		default:
			e.failf("event %s arrived after it was acked or rejected", d.Value.ID())
		}
		e.ack(d)
	}
	e.quiet(src, 2*e.AckWait+e.Slack)
}

// Of all that may undo an ack, a Seek does it by intent.
func ack1Seek(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(3, "ack.seek")
	e.publish(b, events...)
	e.accept(src, events...)
	e.quiet(src, e.absence()/2)
	e.seek(a, sub, messaging.StartFirst())
	e.accept(src, events...)
	e.fence(b, src, "ack.seek")
	e.quiet(src, e.absence()/2)
}
