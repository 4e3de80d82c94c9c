package conformance

import (
	"errors"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// An idle member keeps it, whatever others ask of the broker meanwhile.
func sub10Idle(e *env) {
	b := e.open()
	sub := e.sub()
	sub.Expires = 2 * e.AckWait
	sub.Start = messaging.StartNew()
	src := e.subscribe(b, sub)
	e.pause(2 * sub.Expires)
	e.subscribe(b, e.sub())
	e.closing(e.subscribe(b, sub))
	e.fence(b, src, "sub.idle")
}

// Who is no member does not keep it: a Subscribe that is refused, a second Close.
func sub10Renewed(e *env) {
	b := e.open()
	sub := e.sub()
	sub.Expires = 2 * e.AckWait
	old := e.event("sub.renewed")
	e.publish(b, old)
	src := e.subscribe(b, sub)
	e.accept(src, old)
	e.closing(src)
	closed := time.Now()
	e.pause(sub.Expires / 4)
	other := sub
	other.MaxInFlight = 7
	e.refused(b, other, messaging.ErrConflict)
	e.closing(src)
	e.pause(time.Until(closed.Add(sub.Expires + e.Slack)))
	e.given("with Expires %v, and a Subscribe that was refused and a second Close after a quarter of it", sub.Expires)
	for end := e.later(time.Now()); ; e.pause(e.AckWait / 4) {
		src, err := b.Subscribe(e.ctx, other, nil)
		if err == nil {
			e.accept(src, old) // as a new one
			return
		}
		if !errors.Is(err, messaging.ErrConflict) || !time.Now().Before(end) {
			e.failf("Subscribe %v after the last member had closed: %w", time.Since(closed), err)
		}
	}
}

// The Admin does not find it any more; and what it did before is no member.
func sub10Admin(e *env) {
	b, a := e.openAdmin()
	var subs []messaging.Subscription
	for range asks[:3] {
		sub := e.sub()
		sub.Expires = 2 * e.AckWait
		subs = append(subs, sub)
		e.closing(e.subscribe(b, sub))
	}
	closed := time.Now()
	e.pause(subs[0].Expires / 2)
	if e.Bubble { // elsewhere it may take too long
		for _, sub := range subs {
			e.update(a, sub)
			e.seek(a, sub, messaging.StartFirst())
		}
	}
	e.pause(time.Until(closed.Add(subs[0].Expires + e.Slack + e.prompt()/2)))
	for i, ask := range asks[:3] {
		e.is(ask.ask(e.ctx, a, subs[i]), messaging.ErrNotFound, "%s of a subscription that has expired", ask.name)
	}
}

// Its dead letters stay, as those of one that is deleted do [ADM-3].
func sub10Letters(e *env) {
	b := e.open()
	sub := e.sub()
	sub.Expires = e.AckWait
	src := e.subscribe(b, sub)
	ev := e.event("sub.letters")
	e.bury(b, src, ev)
	e.closing(src)
	e.pause(2*e.AckWait + e.Slack)
	e.subscribe(b, e.sub()) // where a broker may look for what has expired
	sub.Start = messaging.StartNew()
	e.subscribe(b, sub)
	e.deadLetter(e.subscribe(b, e.dead(sub)), ev)
}
