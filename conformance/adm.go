package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

var admChecks = map[string][]check{
	"ADM-1": {
		{name: "settings", do: adm1Settings},
		{name: "members", do: adm1Members},
		{name: "counts", do: adm1Counts},
		{name: "dead_letters", do: adm1Letters},
		{name: "not_found", do: adm1NotFound},
		{name: "refusals", do: adm1Refusals},
	},
	"ADM-2": {
		{name: "back", do: adm2Back},
		{name: "forward", do: adm2Forward},
		{name: "stale", do: adm2Stale},
		{name: "attempts", do: adm2Attempts},
		{name: "under_load", do: adm2Load},
		{name: "dead_letters", do: adm2Letters},
		{name: "sequence", do: adm2Sequence, needs: Positions},
		{name: "time", do: adm2Time, needs: Positions},
		{name: "unsupported", do: adm2Unsupported, unless: Positions},
	},
	"ADM-3": {
		{name: "discarded", do: adm3Discarded},
		{name: "anew", do: adm3Anew},
		{name: "members", do: adm3Members},
		{name: "dead_letters", do: adm3Letters},
		{name: "undecodable", do: adm3Undecodable, inject: true},
	},
	"ADM-4": {
		{name: "in_place", do: adm4},
		{name: "max_in_flight", do: adm4MaxInFlight},
		{name: "max_attempts", do: adm4MaxAttempts},
		{name: "ack_wait", do: adm4AckWait},
		{name: "types", do: adm4Types},
		{name: "dead_letters", do: adm4Letters},
		{name: "expires", do: adm4Expires, needs: Expires},
		{name: "unsupported", do: adm4Unsupported, unless: Expires},
		{name: "invalid", do: adm4Invalid},
	},
}

// skipped is what ends a check that turns out to have nothing to check.
type skipped struct{ reason string }

func (s skipped) Error() string { return s.reason }

// admin returns the broker's Admin. A provider may do without.
func (e *env) admin(b Broker) messaging.Admin {
	a, err := messaging.AdminOf(b)
	if errors.Is(err, errors.ErrUnsupported) {
		panic(skipped{err.Error()})
	}
	e.ok(err, "AdminOf")
	return a
}

// openAdmin is open and admin.
func (e *env) openAdmin() (Broker, messaging.Admin) {
	b := e.open()
	return b, e.admin(b)
}

// Steps.

func (e *env) seek(a messaging.Admin, sub messaging.Subscription, to messaging.Start) {
	e.ok(e.trySeek(a, sub, to), "Seek(%s) to %v", sub.Name, to)
}

func (e *env) trySeek(a messaging.Admin, sub messaging.Subscription, to messaging.Start) error {
	ctx, cancel := e.settling(fmt.Sprintf("Seek(%s) to %v", sub.Name, to))
	defer cancel()
	return a.Seek(ctx, only(sub), to)
}

func (e *env) update(a messaging.Admin, sub messaging.Subscription) {
	e.ok(e.tryUpdate(a, sub), "Update(%+v)", sub)
}

func (e *env) tryUpdate(a messaging.Admin, sub messaging.Subscription) error {
	ctx, cancel := e.settling("Update")
	defer cancel()
	return a.Update(ctx, sub)
}

func (e *env) delete(a messaging.Admin, sub messaging.Subscription) uint64 {
	ctx, cancel := e.settling(fmt.Sprintf("Delete(%s)", sub.Name))
	defer cancel()
	n, err := a.Delete(ctx, only(sub))
	e.ok(err, "Delete(%s)", sub.Name)
	return n
}

// deleteLetters removes that many dead letters.
func (e *env) deleteLetters(a messaging.Admin, name string, want uint64) {
	ctx, cancel := e.settling(fmt.Sprintf("DeleteDeadLetters(%s)", name))
	defer cancel()
	n, err := a.DeleteDeadLetters(ctx, name)
	e.ok(err, "DeleteDeadLetters(%s)", name)
	if n != want {
		e.failf("DeleteDeadLetters(%s) tells of %d, want %d", name, n, want)
	}
}

// only is what names a subscription; the other fields do not count.
func only(sub messaging.Subscription) messaging.Subscription {
	return messaging.Subscription{Name: sub.Name, DeadLettersOf: sub.DeadLettersOf}
}

func (e *env) list(a messaging.Admin) []messaging.Status {
	ctx, cancel := e.settling("Subscriptions")
	defer cancel()
	all, err := a.Subscriptions(ctx)
	e.ok(err, "Subscriptions")
	return all
}

func (e *env) listed(a messaging.Admin, sub messaging.Subscription) (messaging.Status, bool) {
	all := e.list(a)
	i := slices.IndexFunc(all, func(s messaging.Status) bool {
		return s.Name == sub.Name && s.DeadLettersOf == sub.DeadLettersOf
	})
	if i < 0 {
		return messaging.Status{}, false
	}
	return all[i], true
}

// told asks for the state of a subscription until it is what it should be: a
// server may count a little later than it answers. In a bubble it has to be
// right the first time.
func (e *env) told(a messaging.Admin, sub messaging.Subscription, want string, holds func(messaging.Status) bool) messaging.Status {
	for end := e.later(time.Now()); ; e.pause(e.AckWait / 20) {
		s, ok := e.listed(a, sub)
		switch late := !time.Now().Before(end); {
		case ok && holds(s):
			return s
		case late && !ok:
			e.failf("the subscription %s is not listed", sub.Name)
		case late:
			e.failf("the subscription %s is listed as %+v, want %s", sub.Name, s, want)
		}
	}
}

// settings expects the subscription to be listed with its settings.
func (e *env) settings(a messaging.Admin, sub messaging.Subscription) {
	want, err := sub.Normalize()
	e.ok(err, "Normalize")
	e.told(a, sub, fmt.Sprintf("the settings %+v", want), func(s messaging.Status) bool {
		return want.Conflict(s.Subscription) == nil
	})
}

// counted is what Admin counts of a subscription. anything is not compared.
type counted struct {
	pending, inFlight, redelivered, letters int
}

const anything = -1

func (e *env) counts(a messaging.Admin, sub messaging.Subscription, want counted) messaging.Status {
	same := func(want int, got uint64) bool { return want == anything || uint64(want) == got }
	return e.told(a, sub, fmt.Sprintf("Pending %d, InFlight %d, Redelivered %d, DeadLetters %d (%d: any)",
		want.pending, want.inFlight, want.redelivered, want.letters, anything), func(s messaging.Status) bool {
		return same(want.pending, s.Pending) && same(want.inFlight, uint64(s.InFlight)) &&
			same(want.redelivered, uint64(s.Redelivered)) && same(want.letters, s.DeadLetters)
	})
}

// gone expects the subscription to be listed no more.
func (e *env) gone(a messaging.Admin, sub messaging.Subscription) {
	for end := e.later(time.Now()); ; e.pause(e.AckWait / 20) {
		s, ok := e.listed(a, sub)
		if !ok {
			return
		}
		if !time.Now().Before(end) {
			e.failf("the subscription %s was deleted, and is listed as %+v", sub.Name, s)
		}
	}
}

// noticed receives until a delivery shows that the member has noticed what an
// Admin has done. Until then it gives back what it receives. In a bubble the
// first delivery has to show it.
func (e *env) noticed(src messaging.Source, what string, holds func(*messaging.Delivery) bool) *messaging.Delivery {
	for end := e.later(time.Now()); ; {
		d := e.receive(src)
		if holds(d) {
			return d
		}
		if !time.Now().Before(end) {
			e.failf("event %s, attempt %d of %d, with a deadline in %v, arrived %v after %s", d.Value.ID(),
				d.Info.Attempt, d.Info.MaxAttempts, time.Until(d.Deadline()), e.prompt(), what)
		}
		e.release(d)
		e.pause(e.AckWait / 20)
	}
}

// sought receives an event after a Seek. On a server a member may hand out
// what it had fetched before it notices; in a bubble nothing else arrives.
func (e *env) sought(src messaging.Source, want event.Event) *messaging.Delivery {
	for end := e.later(time.Now()); ; {
		d := e.receive(src)
		if d.Value.ID() == want.ID() || !time.Now().Before(end) {
			e.same(d, want)
			e.attempt(d, 1)
			return d
		}
	}
}

// stale settles a delivery from before a Seek, or of a subscription that was
// deleted.
func (e *env) stale(d *messaging.Delivery, name string, settle func(*messaging.Delivery, context.Context) error) {
	ctx, cancel := e.settling(name)
	defer cancel()
	if _, err := d.Extend(ctx); err == nil {
		e.failf("Extend of a delivery that is not its member's any more returned nil")
	}
	if err := settle(d, ctx); err == nil {
		e.failf("%s of a delivery that is not its member's any more returned nil", name)
	}
}

// ADM-1.

func adm1Settings(e *env) {
	b, a := e.openAdmin()
	if all := e.list(a); len(all) != 0 {
		e.failf("a broker without subscriptions lists %+v", all)
	}
	plain := messaging.Subscription{Name: e.name()}
	set := messaging.Subscription{
		Name: e.name(), Types: []string{"adm.two", "adm.one.*", "adm.two"}, Start: messaging.StartNew(),
		AckWait: e.long() + time.Nanosecond, MaxInFlight: 7, MaxAttempts: 3,
	}
	if e.Capabilities.Has(Expires) {
		set.Expires = e.long()
	}
	letters := messaging.Subscription{Name: plain.Name, DeadLettersOf: plain.Name, MaxInFlight: 5}
	others := e.dead(plain, "adm.>")
	subs := []messaging.Subscription{set, plain, letters, others}
	e.subscribe(b, set)
	e.closing(e.subscribe(b, plain))
	e.subscribe(b, letters)
	e.closing(e.subscribe(b, others))
	for range 2 {
		for _, sub := range subs {
			e.settings(a, sub)
		}
		all := e.list(a)
		if len(all) != len(subs) {
			e.failf("%d subscriptions are listed, of %d: %+v", len(all), len(subs), all)
		}
		for i, s := range all {
			for _, after := range all[i+1:] {
				if s.DeadLettersOf == after.DeadLettersOf && s.Name >= after.Name {
					e.failf("the subscription %s is listed before %s", s.Name, after.Name)
				}
			}
			for j := range s.Types { // whoever asked may do with them what he wants
				all[i].Types[j] = "vandalised"
			}
		}
	}
	e.subscribe(b, set)
}

func adm1Members(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	var members []messaging.Source
	has := func(n int) {
		e.told(a, sub, fmt.Sprintf("Members %d, or -1", n), func(s messaging.Status) bool { return s.Members == n || s.Members == -1 })
	}
	for n := 1; n <= 3; n++ {
		members = append(members, e.subscribe(b, sub))
		has(n)
	}
	e.subscribe(b, e.sub())
	has(3)
	for i, m := range members {
		e.closing(m)
		e.closing(m)
		has(2 - i)
	}
}

// oldest expects the time of the oldest unsettled event. A server may know it
// only of those that are not in flight.
func (e *env) oldest(a messaging.Admin, sub messaging.Subscription, unsettled, pending time.Time) {
	if e.Bubble {
		pending = unsettled
	}
	e.told(a, sub, fmt.Sprintf("Oldest from %v to %v", unsettled, pending), func(s messaging.Status) bool {
		return !s.Oldest.Before(unsettled) && !s.Oldest.After(pending)
	})
}

func adm1Counts(e *env) {
	b, a := e.openAdmin()
	sub, all := e.sub("adm.count"), e.sub()
	sub.MaxInFlight = 3
	e.closing(e.subscribe(b, sub))
	bystander := e.subscribe(b, all)
	e.counts(a, sub, counted{})
	events := e.events(6, "adm.count")
	var stored []time.Time
	e.publish(b, e.event("adm.other"))
	e.ack(e.receive(bystander))
	for i, ev := range events {
		e.tick()
		e.publish(b, ev)
		d := e.expect(bystander, ev, 1)
		stored = append(stored, d.Info.Stored)
		e.ack(d)
		e.tick()
		e.publish(b, e.event("adm.other"))
		e.ack(e.receive(bystander))
		e.counts(a, sub, counted{pending: i + 1})
	}
	e.oldest(a, sub, stored[0], stored[0])
	if s := e.counts(a, all, counted{}); !s.Oldest.IsZero() {
		e.failf("of a subscription with nothing unsettled the oldest is %v old", time.Since(s.Oldest))
	}

	src := e.subscribe(b, sub)
	first, second, third := e.expect(src, events[0], 1), e.expect(src, events[1], 1), e.expect(src, events[2], 1)
	e.counts(a, sub, counted{pending: 3, inFlight: 3})
	e.oldest(a, sub, stored[0], stored[3])
	e.retry(second, 0)
	second = e.expect(src, events[1], 2)
	e.counts(a, sub, counted{pending: 3, inFlight: 3, redelivered: 1})
	e.ack(first)
	fourth := e.expect(src, events[3], 1)
	e.counts(a, sub, counted{pending: 2, inFlight: 3, redelivered: 1})
	e.oldest(a, sub, stored[1], stored[4])
	e.retry(third, e.long()/4)
	e.counts(a, sub, counted{pending: 2, inFlight: 3, redelivered: anything})
	e.reject(second, "for a test")
	e.expect(src, events[4], 1)
	e.counts(a, sub, counted{pending: 1, inFlight: 3, redelivered: anything, letters: 1})
	e.ack(fourth)
	e.expect(src, events[5], 1)
	e.counts(a, sub, counted{inFlight: 3, redelivered: anything, letters: 1})
	e.counts(a, all, counted{})
}

func adm1Letters(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.letter")
	list, other := e.dead(sub), e.dead(sub)
	other.Name = sub.Name // another subscription all the same
	src := e.subscribe(b, sub)
	e.closing(e.subscribe(b, list))
	e.closing(e.subscribe(b, other))
	events := e.events(3, "adm.letter")
	e.publish(b, events...)
	for _, ev := range events {
		e.reject(e.expect(src, ev, 1), "for a test")
	}
	e.counts(a, sub, counted{letters: 3})
	e.counts(a, list, counted{pending: 3})
	e.counts(a, other, counted{pending: 3})

	letters := e.subscribe(b, list)
	ds := e.deadLetters(letters, events...)
	e.counts(a, list, counted{inFlight: 3})
	e.reject(ds[0], "still not") // is done with, and stays
	e.counts(a, list, counted{inFlight: 2})
	e.counts(a, sub, counted{letters: 3})
	e.ack(ds[1])
	e.counts(a, list, counted{inFlight: 1})
	e.counts(a, sub, counted{letters: 2})
	e.counts(a, other, counted{pending: 2})
}

// asks are the calls of an Admin about one subscription, by name.
var asks = []struct {
	name string
	ask  func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error
}{
	{"Seek", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		return a.Seek(ctx, sub, messaging.StartFirst())
	}},
	{"Update", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		return a.Update(ctx, sub)
	}},
	{"Delete", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		_, err := a.Delete(ctx, sub)
		return err
	}},
	{"DeleteDeadLetters", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		_, err := a.DeleteDeadLetters(ctx, sub.Name)
		return err
	}},
	{"Undecodable", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		_, err := a.Undecodable(ctx, sub.Name)
		return err
	}},
}

func adm1NotFound(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	e.subscribe(b, sub)
	unknown := e.sub()
	for _, ask := range asks {
		ctx, cancel := e.settling(ask.name)
		e.is(ask.ask(ctx, a, unknown), messaging.ErrNotFound, "%s of a subscription that does not exist", ask.name)
		cancel()
	}
	// A subscription is known by both of its names.
	wrong := []messaging.Subscription{e.dead(sub), e.dead(unknown)}
	wrong[1].Name = sub.Name
	for _, other := range wrong {
		for _, ask := range asks[:3] {
			ctx, cancel := e.settling(ask.name)
			e.is(ask.ask(ctx, a, other), messaging.ErrNotFound, "%s of %q, which reads no dead letters of %q", ask.name, other.Name, other.DeadLettersOf)
			cancel()
		}
	}
	if all := e.list(a); len(all) != 1 {
		e.failf("what looks for subscriptions that do not exist has made some: %+v", all)
	}
}

// Refusals come in this order: closed, context done, invalid. They do nothing.
func adm1Refusals(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.refused")
	src := e.subscribe(b, sub)
	events := e.events(3, "adm.refused")
	e.publish(b, events...)
	e.accept(src, events[0])
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	invalid := sub
	invalid.MaxInFlight = -1
	list := func(ctx context.Context) error { _, err := a.Subscriptions(ctx); return err }
	for _, ask := range asks {
		e.is(ask.ask(done, a, sub), context.Canceled, "%s with a context that is done", ask.name)
	}
	e.is(list(done), context.Canceled, "Subscriptions with a context that is done")
	e.is(a.Update(done, invalid), context.Canceled, "Update with bad settings and a context that is done")
	e.settings(a, sub)
	e.accept(src, events[1:]...)
	e.closing(b)
	for _, ask := range asks {
		e.is(ask.ask(done, a, sub), messaging.ErrClosed, "%s on a closed broker with a context that is done", ask.name)
	}
	e.is(list(e.ctx), messaging.ErrClosed, "Subscriptions on a closed broker")
	e.is(a.Update(e.ctx, invalid), messaging.ErrClosed, "Update on a closed broker with bad settings")
}
