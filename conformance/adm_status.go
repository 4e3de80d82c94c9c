package conformance

import (
	"fmt"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

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
	e.bury(b, src, events...)
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
