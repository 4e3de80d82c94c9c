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
		{name: "undecodable_stays", do: adm3Raw, inject: true},
		{name: "made_anew_under_its_dead_letters", do: adm3Parent},
		{name: "namesake", do: adm3Namesake},
		{name: "dead_letters_out", do: adm3Out},
		{name: "dead_letters_go_on", do: adm3On},
		{name: "beside_a_seek", do: adm3Seek},
	},
	"ADM-4": {
		{name: "in_place", do: adm4},
		{name: "max_in_flight", do: adm4MaxInFlight},
		{name: "max_attempts", do: adm4MaxAttempts},
		{name: "ack_wait", do: adm4AckWait},
		{name: "extend", do: adm4Extend},
		{name: "types", do: adm4Types},
		{name: "dead_letters", do: adm4Letters},
		{name: "expires", do: adm4Expires, needs: Expires},
		{name: "unsupported", do: adm4Unsupported, unless: Expires},
		{name: "invalid", do: adm4Invalid},
		{name: "waiting", do: adm4Waiting},
		{name: "start_stays", do: adm4Start},
		{name: "out", do: adm4Out},
		{name: "types_later", do: adm4Tail},
		{name: "beside_a_seek", do: adm4Seek},
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
