package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"reflect"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

var clsChecks = map[string][]check{
	"CLS-1": {
		{name: "gives_back", do: cls1},
		{name: "while_another_waits", do: cls1Waiting},
		{name: "idempotent", do: cls1Idempotent},
		{name: "during_receive", do: cls1Receive},
		{name: "broker", do: cls1Broker},
	},
	"CLS-2": {
		{name: "loses_nothing", do: cls2},
		{name: "counts_nothing", do: cls2Attempts},
	},
	"CLS-3": {{name: "nothing_left_running", do: cls3}},
}

// What a member held, and what it may have prefetched, goes to others at once.
func cls1(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 20
	src := e.subscribe(b, sub)
	events := e.events(20, "cls.held")
	e.publish(b, events...)
	for _, ev := range events[:7] {
		e.expect(src, ev, 1)
	}
	e.pause(e.AckWait / 4)
	e.closing(src)
	e.given("when a member with 7 of 20 events unsettled had closed")
	began := time.Now()
	e.contains(e.collect(20, e.subscribe(b, sub)), events)
	if took := time.Since(began); took > e.long()/2 {
		e.failf("what a closed member held arrived in %v, with AckWait %v", took, e.long())
	}
}

func cls1Waiting(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 2
	one, two := e.subscribe(b, sub), e.subscribe(b, sub)
	ev := e.event("cls.waiting")
	e.publish(b, ev)
	_, holder, other := e.either(one, two)
	waiting := e.async(func() { e.ack(e.expect(other, ev, 1)) })
	e.pause(e.AckWait / 20)
	e.given("when the member that had the event had closed")
	e.closing(holder)
	waiting()
	e.given("")

	// A member that closes with nothing in its hands disturbs nobody.
	third := e.subscribe(b, sub)
	next := e.event("cls.waiting")
	waiting = e.async(func() { e.accept(other, next) })
	e.pause(e.AckWait / 20)
	e.closing(third)
	e.publish(b, next)
	waiting()
}

func cls1Idempotent(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	e.publish(b, e.event("cls.twice"))
	e.receive(src)
	var waits []func()
	for range 4 {
		waits = append(waits, e.async(func() {
			for range 3 {
				e.takes(e.prompt(), "Close of a source", func() { e.closing(src) })
			}
		}))
	}
	for _, wait := range waits {
		wait()
	}
	for range 4 {
		waits = append(waits[:0], e.async(func() { e.takes(e.prompt(), "Close of a broker", func() { e.closing(b) }) }))
	}
	for _, wait := range waits {
		wait()
	}
	e.takes(e.prompt(), "Close of a source after its broker", func() { e.closing(src) })
}

// Close races with Receives and settles: each of them ends, an event is either
// received or given back, and what was acked stays so.
func cls1Receive(e *env) {
	b := e.open()
	sub := e.sub()
	events := e.events(120, "cls.race")
	e.publish(b, events...)
	acked := make(map[string]bool)
	for range 8 {
		src := e.subscribe(b, sub)
		results := make(chan string, len(events))
		var waits []func()
		for range 3 {
			waits = append(waits, e.async(func() {
				for {
					d, err := src.Receive(e.ctx)
					if err != nil {
						e.is(err, messaging.ErrClosed, "Receive of a source that is closed at the time")
						return
					}
					e.attempt(d, 1)
					if err := d.Ack(e.ctx); err != nil {
						e.is(err, reactor.ErrLost, "Ack of a delivery whose source is closed at the time")
						continue
					}
					results <- d.Value.ID()
				}
			}))
		}
		e.await("an event", func() bool { return len(results) > 0 || len(acked) == len(events) })
		e.closing(src)
		for _, wait := range waits {
			e.takes(e.prompt(), "Receive of a closed source", wait)
		}
		for range len(results) {
			id := <-results
			if acked[id] {
				e.failf("event %s arrived after it was acked", id)
			}
			acked[id] = true
		}
	}
	rest := e.event("cls.race")
	e.publish(b, rest)
	for key := range e.collect(len(events)-len(acked)+1, e.subscribe(b, sub)) {
		if id, _, _ := strings.Cut(key, " "); acked[id] {
			e.failf("event %s arrived after it was acked", id)
		}
	}
}

// Closing a broker closes its sources, and gives back what they held.
func cls1Broker(e *env) {
	b := e.open()
	one, two := e.subscribe(b, e.sub()), e.subscribe(b, e.sub())
	ev := e.event("cls.broker")
	e.publish(b, ev)
	d := e.expect(one, ev, 1)
	e.accept(two, ev)
	var waits []func()
	for range 3 {
		waits = append(waits, e.async(func() {
			_, err := two.Receive(e.ctx)
			e.is(err, messaging.ErrClosed, "Receive during which the broker was closed")
		}))
	}
	e.pause(e.AckWait / 20)
	e.closing(b)
	for _, wait := range waits {
		e.takes(e.prompt(), "Receive of a closed broker", wait)
	}
	_, err := one.Receive(e.ctx)
	e.is(err, messaging.ErrClosed, "Receive after the broker was closed")
	e.is(d.Ack(e.ctx), reactor.ErrLost, "Ack after the broker was closed")
	_, err = b.Subscribe(e.ctx, e.sub(), nil)
	e.is(err, messaging.ErrClosed, "Subscribe after the broker was closed")
	e.closing(one)
	e.closing(two)
}

func cls2(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxAttempts = 3
	events := e.events(10, "cls.lose")
	src := e.subscribe(b, sub)
	e.publish(b, events[:6]...)
	e.accept(src, events[0])
	e.expect(src, events[1], 1)
	from, due := e.retryAfter(e.expect(src, events[2], 1), e.AckWait)
	e.closing(src)
	e.publish(b, events[6:]...) // while nobody is there
	e.pause(e.AckWait / 4)
	src = e.subscribe(b, sub)
	e.given("when a member had closed with one event unsettled and one waiting for a retry")
	seen := make(map[string]event.Event)
	retried := false
	for range 8 {
		d := e.receive(src)
		if d.Value.ID() == events[2].ID() && !retried && !time.Now().Before(from) {
			retried = true // it was due before the others had come, which took long
			e.attempt(d, 2)
			e.ack(d)
			d = e.receive(src)
		}
		e.attempt(d, 1)
		e.ack(d)
		seen[d.Value.ID()+" "+d.Value.Source()] = d.Value
	}
	if !retried {
		e.ack(e.again(src, events[2], 2, from, due))
	}
	seen[events[2].ID()+" "+events[2].Source()] = events[2]
	e.contains(seen, events[1:])
	e.quiet(src, e.absence())

	// It still exists: what is published now is delivered, though Start is New.
	e.closing(src)
	e.pause(2 * e.AckWait)
	more := e.event("cls.lose")
	e.publish(b, more)
	sub.Start = messaging.StartNew()
	e.accept(e.subscribe(b, sub), more)
}

func cls2Attempts(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxAttempts = 1
	ev := e.event("cls.count")
	e.publish(b, ev)
	for range 5 {
		src := e.subscribe(b, sub)
		e.expect(src, ev, 1)
		e.closing(src)
		e.given("when a member had closed with the event unsettled")
	}
	src := e.subscribe(b, sub)
	e.accept(src, ev)
	e.fence(b, src, "cls.count")
}

// In a bubble what is left running ends the check by itself. On a server the
// goroutines that the check has started are looked at: those with a function
// of the provider in their stacks have to end.
func cls3(e *env) {
	label := e.name()
	done := make(chan struct{})
	wait := e.async(func() {
		defer close(done)
		pprof.SetGoroutineLabels(pprof.WithLabels(e.ctx, pprof.Labels("conformance", label)))
		e.cls3()
	})
	wait()
	<-done
	if e.Bubble {
		return
	}
	var left string
	for end := time.Now().Add(e.prompt()); ; {
		if left = goroutines(label, e.provider); left == "" {
			return
		}
		if time.Now().After(end) {
			e.failf("after Close of source and broker goroutines are left:\n%s", left)
		}
		e.pause(e.AckWait / 20)
	}
}

// cls3 uses all that may start something, and closes it.
func (e *env) cls3() {
	b := e.open()
	e.provider = packageOf(b)
	var sources []messaging.Source
	for range 5 {
		sub := e.short()
		src := e.subscribe(b, sub)
		events := e.events(10, "cls.left")
		e.publish(b, events...)
		e.ack(e.receive(src))
		e.retry(e.receive(src), e.AckWait/4)
		e.retry(e.receive(src), time.Hour)
		e.receive(src)
		ctx, cancel := context.WithCancel(e.ctx)
		receiving := e.async(func() {
			for {
				if _, err := src.Receive(ctx); err != nil {
					return
				}
			}
		})
		e.tick()
		cancel()
		receiving()
		sources = append(sources, src)
	}
	for _, src := range sources[1:] {
		e.closing(src)
	}
	e.closing(b)
	e.closing(sources[0])
}

func packageOf(v any) string {
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}

// goroutines returns the stacks of the goroutines with that label that are in
// a function of the package.
func goroutines(label, pkg string) string {
	var buf bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&buf, 1); err != nil {
		return fmt.Sprintf("no goroutine profile: %v", err)
	}
	var found []string
	for _, stack := range strings.Split(buf.String(), "\n\n") {
		if !strings.Contains(stack, fmt.Sprintf("%q:%q", "conformance", label)) {
			continue
		}
		for s := bufio.NewScanner(strings.NewReader(stack)); s.Scan(); {
			if strings.Contains(s.Text(), "\t"+pkg+".") {
				found = append(found, stack)
				break
			}
		}
	}
	return strings.Join(found, "\n\n")
}
