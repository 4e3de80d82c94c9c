package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// What was acked comes again: to a member that waits, and to one that comes
// later.
func adm2Back(e *env) {
	b, a := e.openAdmin()
	sub, bystander := e.sub("adm.back"), e.sub()
	src, other := e.subscribe(b, sub), e.subscribe(b, bystander)
	events := e.events(5, "adm.back")
	for _, ev := range events {
		e.publish(b, ev, e.event("adm.other"))
	}
	e.accept(src, events...)
	e.collect(2*len(events), other)
	waiting := e.async(func() { e.accept(src, events...) })
	e.pause(e.AckWait / 20)
	e.seek(a, sub, messaging.StartFirst())
	waiting()
	e.fence(b, src, "adm.back")

	e.closing(src)
	e.seek(a, sub, messaging.StartFirst())
	src = e.subscribe(b, sub)
	e.accept(src, events...)
	e.ack(e.receive(src)) // the marker
	e.fence(b, src, "adm.back")
	e.settings(a, sub)
	e.collect(2, other) // the markers, and nothing again
	e.quiet(other, e.absence()/2)
}

// What lies between the old position and the new one does not come, whether it
// was pending, held, or waiting for a retry.
func adm2Forward(e *env) {
	b, a := e.openAdmin()
	for _, member := range []bool{true, false} {
		sub := e.sub("adm.forward." + e.name())
		src := e.subscribe(b, sub)
		events := e.events(6, sub.Types[0])
		e.publish(b, events...)
		held := e.expect(src, events[0], 1)
		e.retry(e.expect(src, events[1], 1), e.AckWait)
		if !member {
			e.closing(src)
		}
		e.seek(a, sub, messaging.StartNew())
		next := e.events(3, sub.Types[0])
		e.publish(b, next...)
		if !member {
			src = e.subscribe(b, sub)
		}
		e.ack(e.sought(src, next[0]))
		e.accept(src, next[1:]...)
		e.stale(held, "Release", func(d *messaging.Delivery, ctx context.Context) error { return d.Release(ctx) })
		e.quiet(src, max(e.absence(), 2*e.AckWait))
		e.fence(b, src, sub.Types[0])
		e.counts(a, sub, counted{})
	}
}

// What was delivered before settles nothing afterwards: the new deliveries are
// out, and nobody's but their receivers'.
func adm2Stale(e *env) {
	b, a := e.openAdmin()
	sub := e.short()
	sub.MaxInFlight = len(settles)
	src := e.subscribe(b, sub)
	events := e.events(len(settles), "adm.stale")
	e.publish(b, events...)
	var old, fresh []*messaging.Delivery
	for _, ev := range events {
		old = append(old, e.expect(src, ev, 1))
	}
	e.seek(a, sub, messaging.StartFirst())
	for _, ev := range events { // though as many as may be out were out
		fresh = append(fresh, e.expect(src, ev, 1))
	}
	for i, s := range settles {
		e.stale(old[i], s.name, s.settle)
	}
	last := fresh[len(fresh)-1].Deadline()
	for range events {
		d := e.receiveUntil(src, e.later(last).Add(1))
		if d == nil {
			e.failf("a delivery from before a Seek has settled one from after it: that does not come again")
		}
		e.attempt(d, 2)
		if early := time.Until(fresh[0].Deadline()); early > 0 {
			e.failf("event %s came again %v before the deadline of its delivery: by one from before a Seek", d.Value.ID(), early)
		}
		e.ack(d)
	}
	e.counts(a, sub, counted{})
}

// Attempts begin at 1 again, and those before are forgotten.
func adm2Attempts(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	sub.MaxInFlight, sub.MaxAttempts = 1, 3
	src := e.subscribe(b, sub)
	events := e.events(3, "adm.attempts")
	e.publish(b, events...)
	e.reject(e.expect(src, events[0], 1), "for a test")
	e.retry(e.expect(src, events[1], 1), 0)
	e.retry(e.expect(src, events[1], 2), 0)
	e.expect(src, events[1], 3)
	for range 2 {
		e.seek(a, sub, messaging.StartFirst())
		e.ack(e.expect(src, events[0], 1))
		e.retry(e.expect(src, events[1], 1), 0)
		e.expect(src, events[1], 2)
	}
	e.seek(a, sub, messaging.StartFirst())
	e.ack(e.expect(src, events[0], 1))
	for n := 1; n <= 3; n++ {
		e.retry(e.expect(src, events[1], n), 0)
	}
	e.ack(e.expect(src, events[2], 1))
	e.counts(a, sub, counted{letters: 2})
}

// Members that work while their subscription is moved back lose nothing: all
// that was acked before comes again, and the rest comes.
func adm2Load(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	sub.MaxInFlight = 16
	events := e.events(150, "adm.load")
	var mu sync.Mutex
	acked := make(map[string]int) // since the last Seek began, or before
	total := 0
	count := func(f func() int) func() int {
		return func() int {
			mu.Lock()
			defer mu.Unlock()
			return f()
		}
	}
	acks, different := count(func() int { return total }), count(func() int { return len(acked) })
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var waits []func()
	work := func(src messaging.Source) func() {
		return func() {
			for {
				d, err := src.Receive(ctx)
				if err != nil && ctx.Err() != nil {
					return
				}
				e.ok(err, "Receive of a member whose subscription is moved")
				e.attempt(d, 1)
				time.Sleep(e.AckWait / 500) // stands for work, so that a Seek comes while some are out
				if err := d.Ack(ctx); err != nil {
					continue // from before a Seek
				}
				mu.Lock()
				acked[d.Value.ID()]++
				total++
				mu.Unlock()
			}
		}
	}
	one, two := e.subscribe(b, sub), e.subscribe(b, sub)
	waits = append(waits, e.async(work(one)), e.async(work(two)), e.async(func() {
		for chunk := range slices.Chunk(events, 10) {
			e.publish(b, chunk...)
			e.tick()
		}
	}))
	for range 3 {
		before := acks()
		e.await("acks", func() bool { return acks() >= before+30 })
		mu.Lock()
		clear(acked)
		mu.Unlock()
		e.seek(a, sub, messaging.StartFirst())
	}
	e.begin("the events to come again")
	for end := time.Now().Add(e.lenient(10 * e.AckWait)); different() < len(events); e.tick() {
		if time.Now().After(end) {
			e.failf("%d of %d events arrived since their subscription was moved to the first", different(), len(events))
		}
	}
	cancel()
	for _, wait := range waits {
		wait()
	}
	e.closing(two)
	e.quiet(one, e.absence())
	e.counts(a, sub, counted{})
}

// A dead letter that a subscription is done with comes again after a Seek
// [DLQ-4]; one that was acked is gone.
func adm2Letters(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(4, "adm.letter")
	e.bury(b, src, events...)
	one, another := e.dead(sub), e.dead(sub)
	one.MaxAttempts, another.MaxAttempts = 1, 1
	list, other := e.subscribe(b, one), e.subscribe(b, another)
	ds := e.deadLetters(list, events...)
	e.reject(ds[0], "again")
	e.ack(ds[1])
	e.retry(ds[2], 0) // too often
	for i, d := range e.deadLetters(other, events[0], events[2], events[3]) {
		e.reject(d, fmt.Sprint("again ", i))
	}
	e.quiet(list, e.absence()/2)

	e.seek(a, one, messaging.StartFirst())
	ds = e.deadLetters(list, events[0], events[2], events[3])
	for _, d := range ds {
		e.attempt(d, 1)
		if letter, _ := messaging.DeadLetterFrom(d.Info); letter.Reason != "for a test" || letter.Attempts != 1 {
			e.failf("a dead letter that came again is %+v", letter)
		}
	}
	e.reject(ds[0], "again")
	e.quiet(list, e.absence()/2)
	e.quiet(other, e.absence()/4)
	e.quiet(src, e.absence()/4)

	e.seek(a, one, messaging.StartNew())
	last := e.event("adm.letter")
	e.publish(b, last)
	e.reject(e.expect(src, last, 1), "for a test")
	e.ack(e.sought(list, last))
	e.quiet(list, e.absence()/2)
}

func adm2Sequence(e *env) {
	b, a := e.openAdmin()
	events := e.events(6, "adm.position")
	events[3].SetType("adm.other")
	ds := e.positions(b, events)
	sub := e.sub("adm.position")
	src := e.subscribe(b, sub)
	own := slices.Delete(slices.Clone(events), 3, 4)
	e.accept(src, own...)
	for _, c := range []struct {
		from uint64
		skip int
	}{
		{ds[2].Info.Sequence, 2}, {ds[3].Info.Sequence, 3}, {ds[5].Info.Sequence, 4}, {ds[0].Info.Sequence, 0}, {0, 0},
	} {
		e.seek(a, sub, messaging.StartFrom(c.from))
		e.accept(src, own[c.skip:]...)
		marker := e.event("adm.position")
		e.publish(b, marker)
		e.accept(src, marker)
		own = append(own, marker)
	}
	// One that the log has not reached yet.
	next := e.events(4, "adm.position")
	e.publish(b, next[0])
	d := e.expect(src, next[0], 1)
	e.ack(d)
	e.seek(a, sub, messaging.StartFrom(d.Info.Sequence+2))
	e.publish(b, next[1:]...)
	e.accept(src, next[2:]...)
	e.fence(b, src, "adm.position")
}

func adm2Time(e *env) {
	b, a := e.openAdmin()
	before := time.Now().Add(-time.Hour)
	events := e.events(5, "adm.position")
	ds := e.positions(b, events)
	sub := e.sub()
	src := e.subscribe(b, sub)
	e.accept(src, events...)
	for _, c := range []struct {
		at   time.Time
		skip int
	}{
		{before, 0}, {ds[2].Info.Stored, 2}, {ds[2].Info.Stored.Add(1), 3}, {ds[4].Info.Stored, 4}, {ds[0].Info.Stored, 0},
	} {
		e.seek(a, sub, messaging.StartAt(c.at))
		e.accept(src, events[c.skip:]...)
		marker := e.event("adm.position")
		e.publish(b, marker)
		e.accept(src, marker)
		events = append(events, marker)
	}
	held := e.event("adm.position")
	e.publish(b, held)
	d := e.expect(src, held, 1)
	for _, ahead := range []time.Duration{time.Minute, 24 * time.Hour} {
		e.is(e.trySeek(a, sub, messaging.StartAt(time.Now().Add(ahead))), messaging.ErrInvalid, "Seek to a time in the future")
	}
	e.ack(d) // which is undisturbed
	e.fence(b, src, "adm.position")
}

func adm2Unsupported(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	events := e.events(3, "adm.position")
	e.publish(b, events...)
	d := e.expect(src, events[0], 1)
	for _, to := range []messaging.Start{messaging.StartFrom(1), messaging.StartAt(time.Now().Add(-time.Hour))} {
		e.is(e.trySeek(a, sub, to), errors.ErrUnsupported, "Seek to %v", to)
	}
	e.ack(d)
	e.accept(src, events[1:]...)
}
