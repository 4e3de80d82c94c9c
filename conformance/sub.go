package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

var subChecks = map[string][]check{
	"SUB-1": {
		{name: "before_the_first_receive", do: sub1},
		{name: "at_once", do: sub1AtOnce},
	},
	"SUB-2": {
		{name: "first", do: sub2First},
		{name: "new", do: sub2New},
		{name: "new_under_load", do: sub2NewUnderLoad},
		{name: "sequence", do: sub2Sequence, needs: Positions},
		{name: "sequence_ahead", do: sub2Ahead, needs: Positions},
		{name: "time", do: sub2Time, needs: Positions},
	},
	"SUB-3": {{name: "resume", do: sub3}},
	"SUB-4": {
		{name: "conflict", do: sub4Conflict},
		{name: "conflict_expires", do: sub4Expires, needs: Expires},
		{name: "no_conflict", do: sub4NoConflict},
		{name: "update", do: adm4},
	},
	"SUB-5": {
		{name: "split", do: sub5Split},
		{name: "one_at_a_time", do: sub5OneAtATime},
		{name: "one_in_flight", do: sub5OneInFlight},
		{name: "idle_member", do: sub5Idle},
	},
	"SUB-6": {{name: "independent", do: sub6}},
	"SUB-7": {
		{name: "bad_names", do: sub7Bad},
		{name: "exact", do: sub7Exact},
		{name: "other_settings_out_of_range", do: sub7Settings},
	},
	"SUB-8": {
		{name: "match", do: sub8Match},
		{name: "strange_types", do: sub8Strange},
		{name: "malformed", do: sub8Malformed},
	},
	"SUB-9": {
		{name: "close", do: sub9Close},
		{name: "restart", do: sub9Restart, needs: Durable, restart: true},
	},
	"SUB-10": {
		{name: "not_before", do: sub10NotBefore, needs: Expires},
		{name: "after", do: sub10After, needs: Expires},
		{name: "idle", do: sub10Idle, needs: Expires},
		{name: "refused_and_closed_again", do: sub10Renewed, needs: Expires},
		{name: "admin", do: sub10Admin, needs: Expires},
		{name: "dead_letters", do: sub10Letters, needs: Expires},
	},
}

func sub1(e *env) {
	b := e.open()
	for _, start := range []messaging.Start{messaging.StartFirst(), messaging.StartNew()} {
		sub := e.sub("sub.start." + e.name())
		sub.Start = start
		src := e.subscribe(b, sub)
		events := e.events(3, sub.Types[0])
		e.publish(b, events...)
		e.pause(2 * e.AckWait)
		e.accept(src, events...)
		e.fence(b, src, sub.Types[0])
	}
}

// The subscription exists when Subscribe returns, and not soon after.
func sub1AtOnce(e *env) {
	b := e.open()
	for range 25 {
		sub := e.sub("sub.once")
		sub.Start = messaging.StartNew()
		src := e.subscribe(b, sub)
		ev := e.event("sub.once")
		e.publish(b, ev)
		e.closing(src)
		e.accept(e.subscribe(b, sub), ev)
	}
}

func sub3(e *env) {
	b := e.open()
	events := e.events(6, "sub.resume")
	e.publish(b, events...)
	sub := e.sub()
	src := e.subscribe(b, sub)
	e.accept(src, events[:2]...)
	e.closing(src)
	e.pause(e.AckWait)
	got := make(map[string]event.Event)
	for _, start := range []messaging.Start{messaging.StartNew(), messaging.StartFirst()} {
		sub.Start = start
		src = e.subscribe(b, sub)
		maps.Copy(got, e.collect(1, src))
		e.closing(src)
	}
	if e.Capabilities.Has(Positions) {
		sub.Start = messaging.StartFrom(1)
	}
	src = e.subscribe(b, sub)
	maps.Copy(got, e.collect(2, src))
	e.contains(got, events[2:])
	e.fence(b, src, "sub.resume")
}

// conflicts changes one field at a time of the settings of an existing
// subscription.
func (e *env) conflicts(b Broker, sub messaging.Subscription, field string, have, want any, change func(*messaging.Subscription)) {
	other := sub
	change(&other)
	err := e.refused(b, other, messaging.ErrConflict)
	for _, part := range []string{field, fmt.Sprint(have), fmt.Sprint(want)} {
		if !strings.Contains(err.Error(), part) {
			e.failf("the conflict in %s does not name %q: %v", field, part, err)
		}
	}
}

func sub4Conflict(e *env) {
	b := e.open()
	sub := e.sub("sub.one", "sub.two")
	sub.MaxInFlight, sub.MaxAttempts = 21, 31
	src := e.subscribe(b, sub)
	waiting, pending := e.event("sub.one"), e.event("sub.two")
	e.publish(b, waiting, pending)
	e.accept(src, waiting)
	e.given("where there is Subscription{%s}", spell(sub))
	for _, member := range []bool{true, false} {
		if !member {
			e.closing(src)
		}
		e.conflicts(b, sub, "AckWait", sub.AckWait, 2*sub.AckWait, func(s *messaging.Subscription) { s.AckWait *= 2 })
		e.conflicts(b, sub, "AckWait", sub.AckWait, sub.AckWait+1, func(s *messaging.Subscription) { s.AckWait++ })
		e.conflicts(b, sub, "MaxInFlight", 21, 22, func(s *messaging.Subscription) { s.MaxInFlight = 22 })
		e.conflicts(b, sub, "MaxInFlight", 21, messaging.DefaultMaxInFlight, func(s *messaging.Subscription) { s.MaxInFlight = 0 })
		e.conflicts(b, sub, "MaxAttempts", 31, 32, func(s *messaging.Subscription) { s.MaxAttempts = 32 })
		e.conflicts(b, sub, "MaxAttempts", 31, 0, func(s *messaging.Subscription) { s.MaxAttempts = 0 })
		e.conflicts(b, sub, "Types", "sub.two", "sub.three", func(s *messaging.Subscription) { s.Types = []string{"sub.one", "sub.three"} })
		e.conflicts(b, sub, "Types", "sub.two", "sub.one", func(s *messaging.Subscription) { s.Types = []string{"sub.one"} })
		e.conflicts(b, sub, "Types", "sub.two", "", func(s *messaging.Subscription) { s.Types = nil })
	}
	e.given("")
	src = e.subscribe(b, sub) // which all this has not changed
	e.accept(src, pending)
	e.fence(b, src, "sub.one")
}

func sub4Expires(e *env) {
	b := e.open()
	sub := e.sub()
	sub.Expires = e.long()
	e.subscribe(b, sub)
	e.conflicts(b, sub, "Expires", sub.Expires, 2*sub.Expires, func(s *messaging.Subscription) { s.Expires *= 2 })
	e.conflicts(b, sub, "Expires", sub.Expires, 0, func(s *messaging.Subscription) { s.Expires = 0 })
}

func sub4NoConflict(e *env) {
	b := e.open()
	sub := e.sub("sub.one", "sub.two")
	e.subscribe(b, sub)
	sub.Types = []string{"sub.two", "sub.one", "sub.two"}
	e.subscribe(b, sub)

	defaults := messaging.Subscription{Name: e.name()}
	e.subscribe(b, defaults)
	explicit := defaults
	explicit.AckWait, explicit.MaxInFlight = messaging.DefaultAckWait, messaging.DefaultMaxInFlight
	explicit.Types = []string{}
	e.subscribe(b, explicit)

	all := e.sub(">")
	all.Start = messaging.StartNew()
	e.subscribe(b, all)
	all.Start = messaging.StartFirst()
	e.subscribe(b, all)
	e.given("where there is Subscription{%s}", spell(all))
	all.Types = nil
	e.refused(b, all, messaging.ErrConflict) // a set of patterns, not what they match
}

func sub6(e *env) {
	b := e.open()
	narrow := e.sub()
	narrow.MaxInFlight = 1
	narrow.MaxAttempts = 2
	stuck, retrying, free := e.subscribe(b, narrow), e.subscribe(b, e.sub()), e.subscribe(b, e.sub())
	events := e.events(50, "sub.free")
	e.publish(b, events[:25]...)
	held := e.expect(stuck, events[0], 1)
	for range 10 {
		e.retry(e.receive(retrying), e.long()/4)
	}
	e.publish(b, events[25:]...)
	e.accept(free, events...)
	e.accept(retrying, events[10:]...)
	e.reject(held, "for a test")
	e.ack(e.expect(stuck, events[1], 1))
	late := e.subscribe(b, e.sub())
	e.accept(late, events...)
	e.fence(b, free, "sub.free")
}

func sub7Bad(e *env) {
	b := e.open()
	long := strings.Repeat("x", 65)
	names := []string{
		"", " ", "-a", "_a", "A", "aB", "a.b", "a b", " a", "a ", "a/b", `a\b`, "a*", "*", ">", "a>", "ü", "aü", "a\n", "a\x00", "..",
		"a:b", "a%2Db", "a,b", "a=b", "$a", "a|b", long, strings.Repeat("ü", 32), "\xff",
	}
	for _, name := range names {
		e.refused(b, messaging.Subscription{Name: name}, messaging.ErrInvalid)
	}
	for _, name := range names[1:] {
		e.refused(b, messaging.Subscription{Name: e.name(), DeadLettersOf: name}, messaging.ErrInvalid)
	}
}

// Names that are nearly the same are different names, as short and as long as
// they may be.
func sub7Exact(e *env) {
	b := e.open()
	ev := e.event("sub.names")
	e.publish(b, ev)
	base := e.id
	fill := strings.Repeat("x", 64-len(base)-1)
	for _, name := range []string{
		base, base + "-", base + "_", base + "-a", base + "_a", base + "-a-b", base + "-a_b", base + "_a-b", base + "_a_b", base + "--a",
		base + "__a", base + "0", base + "00", base + fill + "a", base + fill + "b", "0" + base, "00" + base,
	} {
		sub := e.sub()
		sub.Name = name
		src := e.subscribe(b, sub)
		e.ack(e.expect(src, ev, 1)) // not acked by any other
		e.closing(src)
	}
}

func sub7Settings(e *env) {
	b := e.open()
	types := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("sub.type.%d", i)
		}
		return out
	}
	e.refused(b, messaging.Subscription{Name: e.name(), AckWait: -1}, messaging.ErrInvalid)
	e.refused(b, messaging.Subscription{Name: e.name(), MaxInFlight: -1}, messaging.ErrInvalid)
	e.refused(b, messaging.Subscription{Name: e.name(), MaxAttempts: -1}, messaging.ErrInvalid)
	e.refused(b, messaging.Subscription{Name: e.name(), Expires: -1}, messaging.ErrInvalid)
	e.refused(b, e.sub(types(65)...), messaging.ErrInvalid)
	src := e.subscribe(b, e.sub(types(64)...))
	events := []event.Event{e.event("sub.type.0"), e.event("sub.type.63")}
	e.publish(b, events[0], e.event("sub.type.64"), events[1])
	e.accept(src, events...)

	// Refusals come in this order: closed, context done, invalid.
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := b.Subscribe(done, messaging.Subscription{}, nil)
	e.is(err, context.Canceled, "Subscribe with bad settings and a context that is done")
	_, err = b.Subscribe(done, e.sub(), nil)
	e.is(err, context.Canceled, "Subscribe with a context that is done")
	e.closing(b)
	_, err = b.Subscribe(done, messaging.Subscription{}, nil)
	e.is(err, messaging.ErrClosed, "Subscribe on a closed broker with bad settings and a context that is done")
	_, err = b.Subscribe(e.ctx, e.sub(), nil)
	e.is(err, messaging.ErrClosed, "Subscribe on a closed broker")
}

func sub9Close(e *env) {
	b := e.open()
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(4, "sub.kept")
	e.publish(b, events[:2]...)
	first := e.expect(src, events[0], 1)
	e.accept(src, events[1])
	e.retry(first, 0)
	d := e.expect(src, events[0], 2)
	from, due := e.retryAfter(d, 2*e.AckWait)
	e.publish(b, events[2:]...)
	e.closing(src)

	e.pause(e.AckWait / 2)
	src = e.subscribe(b, sub)
	e.acceptAll(src, events[2:]...)
	e.closing(src)
	src = e.subscribe(b, sub)
	e.retry(e.again(src, events[0], 3, from, due), 0)
	e.closing(src)
	src = e.subscribe(b, sub)
	e.ack(e.expect(src, events[0], 4))
	e.quiet(src, e.absence())
}

func sub9Restart(e *env) {
	b := e.open()
	sub := e.short() // a member that was killed gives nothing back
	src := e.subscribe(b, sub)
	events := e.events(4, "sub.kept")
	e.publish(b, events[:2]...)
	d := e.expect(src, events[0], 1)
	e.accept(src, events[1])
	e.retry(d, 0)
	e.retry(e.expect(src, events[0], 2), 0)
	d = e.expect(src, events[0], 3)
	e.retry(d, e.AckWait/2)
	e.publish(b, events[2:]...)
	e.pause(e.AckWait / 4)
	b = e.restart(b)
	src = e.subscribe(b, sub)
	seen := make(map[string]int)
	for seen[events[0].ID()] == 0 || seen[events[2].ID()] == 0 || seen[events[3].ID()] == 0 {
		wait := e.AckWait + e.Slack + e.prompt() // one of them still has to wait for its retry
		d := e.receiveUntil(src, time.Now().Add(wait))
		if d == nil {
			e.failf("nothing arrived within %v, and %d of three events have after a restart", wait, len(seen))
		}
		seen[d.Value.ID()] = d.Info.Attempt
		e.ack(d)
	}
	if n := seen[events[0].ID()]; n < 4 || n > 4 && e.Capabilities.Has(ExactAttempts) {
		e.failf("event %s has attempt %d after three that failed and a restart", events[0].ID(), n)
	}
	if _, ok := seen[events[1].ID()]; ok && e.Capabilities.Has(ConfirmedAck) {
		e.failf("event %s arrived after it was acked", events[1].ID())
	}
	other := sub
	other.MaxInFlight = 7
	e.refused(b, other, messaging.ErrConflict) // its settings are kept, too
}

func sub10NotBefore(e *env) {
	b := e.open()
	sub := e.sub()
	sub.Expires = 2 * e.AckWait
	sub.Start = messaging.StartNew()
	src := e.subscribe(b, sub)
	events := e.events(3, "sub.expires")
	e.publish(b, events...)
	e.accept(src, events[0])
	e.pause(3 * sub.Expires) // it has a member, if an idle one
	e.accept(src, events[1])
	e.closing(src)
	if e.Bubble {
		e.pause(sub.Expires - 1)
	} else {
		e.pause(sub.Expires / 4)
	}
	src = e.subscribe(b, sub)
	e.accept(src, events[2])
	e.fence(b, src, "sub.expires")
}

func sub10After(e *env) {
	b := e.open()
	sub := e.sub()
	sub.Expires = 2 * e.AckWait
	src := e.subscribe(b, sub)
	old := e.event("sub.expires")
	e.publish(b, old)
	e.accept(src, old)
	e.closing(src)
	closed := time.Now()
	e.pause(sub.Expires + e.Slack)
	other := sub
	other.MaxInFlight = 7
	for {
		// It is gone when other settings are no conflict. What looks for it
		// does not keep it: it never had a member in between.
		ctx, cancel := context.WithTimeout(e.ctx, e.prompt())
		src, err := b.Subscribe(ctx, other, nil)
		cancel()
		if err == nil {
			e.accept(src, old) // from the first event on, as a new one
			break
		}
		if !errors.Is(err, messaging.ErrConflict) {
			e.ok(err, "Subscribe(Subscription{%s})", spell(other))
		}
		if e.Bubble || time.Since(closed) > sub.Expires+e.Slack+e.prompt() {
			e.failf("the subscription still exists %v after its last member closed", time.Since(closed))
		}
		e.pause(e.AckWait / 4)
	}
}
