package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

var rcvChecks = map[string][]check{
	"RCV-1": {
		{name: "context", do: rcv1Context},
		{name: "takes_nothing", do: rcv1TakesNothing},
		{name: "closed", do: rcv1Closed},
		{name: "deleted", do: adm3Members},
	},
	"RCV-2": {
		{name: "attempts", do: rcv2},
		{name: "across_members", do: rcv2Members},
		{name: "restart", do: rcv2Restart, needs: Durable | ExactAttempts, restart: true},
	},
	"RCV-3": {
		{name: "log_order", do: rcv3Order},
		{name: "strict_order", do: rcv3Strict},
		{name: "strict_order_and_death", do: rcv3StrictDeath},
	},
	"RCV-4": {
		{name: "one_member", do: rcv4},
		{name: "two_members", do: rcv4Members},
	},
	"RCV-5": {
		{name: "no_event", do: rcv5, inject: true},
		{name: "not_valid", do: rcv5Lenient, inject: true},
		{name: "raw", do: rcv5Raw, inject: true},
	},
}

func rcv1Context(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	for _, d := range []time.Duration{0, e.AckWait / 10, e.AckWait / 2} {
		var began, ended time.Time
		var err error
		ctx, cancel := context.WithTimeout(e.ctx, d)
		e.takes(d+e.prompt(), "Receive whose deadline has passed", func() {
			began = time.Now()
			_, err = src.Receive(ctx)
			ended = time.Now()
		})
		cancel()
		e.is(err, context.DeadlineExceeded, "Receive with a timeout of %v", d)
		if early := began.Add(d).Sub(ended); early > 0 && d > 0 && e.Bubble {
			e.failf("Receive with a timeout of %v returned %v early", d, early)
		}

		ctx, cancel = context.WithCancel(e.ctx)
		time.AfterFunc(d, cancel)
		e.takes(d+e.prompt(), "Receive whose context was cancelled", func() { _, err = src.Receive(ctx) })
		e.is(err, context.Canceled, "Receive cancelled after %v", d)
	}

	// A context that is done already is refused, also if there are events.
	events := e.events(2, "rcv.done")
	e.publish(b, events...)
	for range 20 {
		var err error
		e.takes(e.prompt(), "Receive whose context is done", func() { _, err = src.Receive(done) })
		e.is(err, context.Canceled, "Receive with a context that is done")
	}
	e.accept(src, events...)
	e.fence(b, src, "rcv.done")
}

// A Receive that is cancelled at the moment an event arrives has it or has not.
func rcv1TakesNothing(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	began := time.Now()
	e.fence(b, src, "rcv.race")
	latency := time.Since(began) // 0 in a bubble, where all runs at one moment
	for range 200 {
		ev := e.event("rcv.race")
		ctx, cancel := context.WithCancel(e.ctx)
		var d *messaging.Delivery
		receive := e.async(func() {
			got, err := src.Receive(ctx)
			if err != nil && ctx.Err() == nil {
				e.failf("Receive: %w", err)
			}
			if err == nil {
				d = got
			}
		})
		abandon := e.async(func() {
			time.Sleep(rand.N(2*latency + 1))
			for range rand.N(50) {
				runtime.Gosched()
			}
			cancel()
		})
		e.publish(b, ev)
		abandon()
		receive()
		if d == nil {
			d = e.receive(src)
		}
		e.same(d, ev)
		e.attempt(d, 1)
		e.ack(d)
	}
	e.fence(b, src, "rcv.race")
}

func rcv1Closed(e *env) {
	for _, what := range []string{"source", "broker"} {
		b := e.open()
		src, other := e.subscribe(b, e.sub()), e.subscribe(b, e.sub())
		var err error
		waiting := e.async(func() { _, err = src.Receive(e.ctx) })
		e.pause(e.absence() / 2)
		if what == "broker" {
			e.closing(b)
		} else {
			e.closing(src)
		}
		e.takes(e.prompt(), "Receive during which the "+what+" was closed", waiting)
		e.is(err, messaging.ErrClosed, "Receive during which the %s was closed", what)
		done, cancel := context.WithCancel(e.ctx)
		cancel()
		e.takes(e.prompt(), "Receive on a closed "+what, func() { _, err = src.Receive(e.ctx) })
		e.is(err, messaging.ErrClosed, "Receive after the %s was closed", what)
		e.takes(e.prompt(), "Receive on a closed "+what+", with a context that is done", func() { _, err = src.Receive(done) })
		e.is(err, messaging.ErrClosed, "Receive after the %s was closed, with a context that is done", what)
		if what == "source" { // others go on
			ev := e.event("rcv.closed")
			e.publish(b, ev)
			e.takes(e.prompt(), "Receive on a closed "+what, func() { _, err = src.Receive(e.ctx) })
			e.is(err, messaging.ErrClosed, "Receive after the %s was closed, with an event to receive", what)
			e.accept(other, ev)
		}
	}
}

func rcv2(e *env) {
	b := e.open()
	src := e.subscribe(b, e.short())
	ev := e.event("rcv.attempt")
	e.publish(b, ev)
	d := e.expect(src, ev, 1)
	e.retry(d, 0)
	d = e.expect(src, ev, 2)
	e.release(d)
	d = e.expect(src, ev, 2)
	d = e.lost(src, d, ev, 3)
	from, due := e.retryAfter(d, e.AckWait/2)
	d = e.again(src, ev, 4, from, due)
	for range 3 {
		e.release(d)
		d = e.expect(src, ev, 4)
	}
	for n := 5; n <= 12; n++ {
		e.retry(d, -time.Second)
		d = e.expect(src, ev, n)
	}
	if d.Info.MaxAttempts != 0 || d.Info.Last() {
		e.failf("a subscription without MaxAttempts delivers with Info.MaxAttempts %d", d.Info.MaxAttempts)
	}
	other := e.event("rcv.attempt")
	e.publish(b, other)
	e.accept(src, other) // counts for itself
	e.ack(d)
}

func rcv2Members(e *env) {
	b := e.open()
	sub := e.sub()
	ev := e.event("rcv.members")
	e.publish(b, ev)
	for n := 1; n <= 6; n++ {
		src, next := e.subscribe(b, sub), e.subscribe(b, sub)
		d, holder, other := e.either(src, next)
		e.attempt(d, n)
		e.retry(d, 0)
		if n%2 == 0 {
			// Let it be redelivered while both are there.
			d, holder, other = e.either(src, next)
			e.attempt(d, n+1)
		}
		e.closing(holder)
		e.closing(other)
		e.given("when a delivery had been %s, and both members closed", []string{"retried, received again and left unsettled", "retried"}[n%2])
	}
	e.ack(e.expect(e.subscribe(b, sub), ev, 7))
}

// A restart adds no attempts to what the member had not settled.
func rcv2Restart(e *env) {
	b := e.open()
	sub := e.short()
	src := e.subscribe(b, sub)
	events := e.events(20, "rcv.restart")
	e.publish(b, events...)
	e.ack(e.expect(src, events[0], 1))
	e.pause(e.AckWait / 2)
	b = e.restart(b)
	e.contains(e.collect(19, e.subscribe(b, sub)), events[1:])
}

func rcv3Order(e *env) {
	b := e.open()
	events := e.events(300, "rcv.order")
	for i := 0; i < len(events); i += 2 {
		events[i].SetType("rcv.other")
	}
	for chunk := range slices.Chunk(events, 30) {
		e.publish(b, chunk...)
	}
	src := e.subscribe(b, e.sub())
	var ds []*messaging.Delivery
	for _, ev := range events {
		ds = append(ds, e.expect(src, ev, 1))
	}
	for i := range ds {
		e.ack(ds[len(ds)-1-i]) // settling in another order changes nothing
	}
	more := e.events(10, "rcv.order")
	e.publish(b, more...)
	e.retry(e.expect(src, more[0], 1), e.long()/4)
	e.accept(src, more[1:]...)
	e.fence(b, src, "rcv.order")
}

func rcv3Strict(e *env) {
	b := e.open()
	sub := e.short()
	sub.MaxInFlight = 1
	src := e.subscribe(b, sub)
	events := e.events(6, "rcv.strict")
	e.publish(b, events[:3]...)

	d := e.expect(src, events[0], 1)
	e.given("with MaxInFlight 1, and %q out", events[0].ID())
	e.quiet(src, e.AckWait/2) // the next has to wait, ...
	e.given("with MaxInFlight 1")
	e.ack(d)
	d = e.expect(src, events[1], 1)
	from, due := e.retryAfter(d, 2*e.AckWait)
	d = e.again(src, events[1], 2, from, due) // ... retries included
	e.retry(d, 0)
	d = e.expect(src, events[1], 3)
	d = e.lost(src, d, events[1], 4)
	e.release(d)
	d = e.expect(src, events[1], 4)
	e.publish(b, events[3:]...)
	e.reject(d, "for a test")
	d = e.expect(src, events[2], 1)
	e.retry(d, 0)
	e.ack(e.expect(src, events[2], 2))
	e.accept(src, events[3:]...)

	// Two that receive at a time change nothing about it.
	more := e.events(20, "rcv.strict")
	e.publish(b, more...)
	var mu sync.Mutex
	next, inside := 0, 0
	var waits []func()
	for range 2 {
		waits = append(waits, e.async(func() {
			for {
				mu.Lock()
				done := next == len(more)
				mu.Unlock()
				if done {
					return
				}
				d := e.receiveUntil(src, time.Now().Add(e.AckWait/2))
				if d == nil {
					continue
				}
				mu.Lock()
				inside++
				now, want := inside, at(more, next)
				mu.Unlock()
				if now != 1 {
					e.failf("two events were out at a time, with MaxInFlight 1")
				}
				e.same(d, want)
				e.tick()
				mu.Lock()
				inside--
				next++
				mu.Unlock()
				e.ack(d)
			}
		}))
	}
	for _, wait := range waits {
		wait()
	}
}

// Where each failure kills or delays, the next event comes only after the one
// before it was acked or is a dead letter.
func rcv3StrictDeath(e *env) {
	b := e.open()
	sub := e.short()
	sub.MaxInFlight, sub.MaxAttempts = 1, 2
	src := e.subscribe(b, sub)
	events := e.events(5, "rcv.strict")
	e.publish(b, events...)
	letters := e.dead(sub)
	e.closing(e.subscribe(b, letters))
	buried := func(n int) {
		list := e.subscribe(b, letters)
		e.deadLetters(list, events[:n]...)
		e.quiet(list, e.AckWait/4)
		e.closing(list)
	}

	from, due := e.retryAfter(e.expect(src, events[0], 1), e.AckWait/2)
	e.given("with MaxInFlight 1, and %q waiting for its retry", events[0].ID())
	d := e.again(src, events[0], 2, from, due)
	e.given("with MaxInFlight 1, and MaxAttempts 2")
	e.quiet(src, time.Until(d.Deadline())/2)
	e.retry(d, e.AckWait/2) // the last: nothing is waited for
	d = e.expect(src, events[1], 1)
	e.lost(src, d, events[1], 2)
	d = e.receiveUntil(src, e.later(time.Now().Add(e.AckWait)).Add(1))
	if d == nil || d.Value.ID() != events[2].ID() {
		e.failf("after the last delivery of an event was lost the next arrived as %v", d)
	}
	e.retry(d, 0)
	e.reject(e.expect(src, events[2], 2), "for a test")
	e.expect(src, events[3], 1)
	buried(3)
	e.closing(src) // back it goes, before the one behind it
	src = e.subscribe(b, sub)
	d = e.expect(src, events[3], 1)
	e.quiet(src, e.AckWait/4)
	e.ack(d)
	e.ack(e.expect(src, events[4], 1))
}

func rcv4(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 3
	src := e.subscribe(b, sub)
	events := e.events(8, "rcv.window")
	e.publish(b, events...)
	var ds []*messaging.Delivery
	for _, ev := range events[:3] {
		ds = append(ds, e.expect(src, ev, 1))
	}
	e.given("with MaxInFlight 3")
	e.quiet(src, e.absence())
	// What waits for a retry is out, too.
	from, due := e.retryAfter(ds[0], 3*e.AckWait)
	e.quiet(src, e.AckWait)
	e.ack(ds[1])
	ds[1] = e.expect(src, events[3], 1)
	e.quiet(src, time.Until(from)/2)
	ds[0] = e.again(src, events[0], 2, from, due)
	e.quiet(src, e.absence())
	for _, d := range ds {
		e.ack(d)
	}
	for _, ev := range events[4:7] {
		e.expect(src, ev, 1)
	}
	e.quiet(src, e.absence())
}

func rcv4Members(e *env) {
	b := e.open()
	sub := e.sub()
	sub.MaxInFlight = 4
	one, two := e.subscribe(b, sub), e.subscribe(b, sub)
	events := e.events(12, "rcv.window")
	e.publish(b, events...)
	var mu sync.Mutex
	var out []*messaging.Delivery
	end := time.Now().Add(e.absence())
	var waits []func()
	for _, src := range []messaging.Source{one, two, one, two} {
		waits = append(waits, e.async(func() {
			for {
				d := e.receiveUntil(src, end)
				if d == nil {
					return
				}
				mu.Lock()
				out = append(out, d)
				mu.Unlock()
			}
		}))
	}
	for _, wait := range waits {
		wait()
	}
	if len(out) > sub.MaxInFlight {
		e.failf("%d events were out at a time, with MaxInFlight %d", len(out), sub.MaxInFlight)
	}
	if len(out) < sub.MaxInFlight {
		e.failf("%d events were received in %v by members that all receive, with MaxInFlight %d", len(out), e.absence(), sub.MaxInFlight)
	}
	for _, d := range out {
		e.ack(d)
	}
	e.collect(len(events)-len(out), one, two)
}

// foreign are messages in the log that are no events.
var foreign = []struct {
	what   string
	header map[string][]string
	body   string
}{
	{"nothing", nil, ""},
	{"a body without headers", nil, "hello"},
	{"headers of something else", map[string][]string{"X-Other": {"1"}}, "hello"},
	{"JSON that is no event", map[string][]string{"Content-Type": {"application/json"}}, `{"a":1}`},
	{"a structured event cut short", map[string][]string{"Content-Type": {"application/cloudevents+json"}}, `{"specversion":"1.0","id":`},
	{"a structured event without a type", map[string][]string{"Content-Type": {"application/cloudevents+json"}}, `{"specversion":"1.0","id":"1","source":"/"}`},
	{"another version", map[string][]string{"ce-specversion": {"7.0"}, "ce-id": {"1"}, "ce-source": {"/"}, "ce-type": {"rcv.foreign"}}, ""},
	{"no id", map[string][]string{"ce-specversion": {"1.0"}, "ce-source": {"/"}, "ce-type": {"rcv.foreign"}}, ""},
	{"invalid UTF-8", map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"%FF"}, "ce-source": {"/"}, "ce-type": {"rcv.foreign"}}, ""},
	{"a time that is none", map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/"}, "ce-type": {"rcv.foreign"}, "ce-time": {"yesterday"}}, ""},
	{"bytes", map[string][]string{"Content-Type": {"application/cloudevents+json"}}, "\x00\xff\xfe" + strings.Repeat("[", 10000)},
}

func rcv5(e *env) {
	b := e.open()
	var mu sync.Mutex
	reports := make(map[string][]error)
	sub, other := e.sub(), e.sub()
	subscribe := func(sub messaging.Subscription) messaging.Source {
		return e.subscribeReport(b, sub, func(_ context.Context, err error) {
			mu.Lock()
			defer mu.Unlock()
			reports[sub.Name] = append(reports[sub.Name], err)
		})
	}
	src := subscribe(sub)
	events := e.events(len(foreign)+1, "rcv.around")
	for i, f := range foreign {
		e.publish(b, events[i])
		e.begin("Inject of %s", f.what)
		e.injected(b, f.header, []byte(f.body))
	}
	e.publish(b, events[len(foreign)])
	e.accept(src, events...)
	late := subscribe(other)
	e.accept(late, events...)

	for _, name := range []string{sub.Name, other.Name} {
		n := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(reports[name])
		}
		e.await("the reports of messages that do not decode", func() bool { return n() >= len(foreign) })
	}
	// They were ended: nobody hears of them again.
	e.closing(src)
	src = subscribe(sub)
	e.fence(b, src, "rcv.around")
	mu.Lock()
	defer mu.Unlock()
	for name, errs := range reports {
		if len(errs) != len(foreign) {
			e.failf("%d reports of %d messages that do not decode: %q", len(errs), len(foreign), errs)
		}
		for i, f := range foreign {
			decode, ok := errors.AsType[*messaging.DecodeError](errs[i])
			switch {
			case !ok:
				e.failf("the report of %s is no DecodeError: %v", f.what, errs[i])
			case decode.Subscription != name:
				e.failf("the report of %s names the subscription %q, want %q", f.what, decode.Subscription, name)
			case string(decode.Body) != f.body:
				e.failf("the report of %s has the body %.50q, want %.50q", f.what, decode.Body, f.body)
			}
		}
	}
}

// A message that parses is delivered, whatever Publish would have said to it.
func rcv5Lenient(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	before, after := e.event("rcv.before"), e.event("rcv.after")
	lenient := e.event("rcv.lenient")
	e.publish(b, before)
	header := make(map[string][]string)
	body, err := event.NATS.Encode(lenient, header)
	e.ok(err, "Encode")
	if string(body) != string(lenient.Data()) {
		e.failf("event.NATS does not encode in binary mode")
	}
	e.injected(b, header, []byte("{ no JSON"))
	e.publish(b, after)
	e.accept(src, before)
	d := e.receive(src)
	if d.Value.ID() != lenient.ID() || string(d.Value.Data()) != "{ no JSON" || d.Value.DataContentType() != "application/json" {
		e.failf("a message that parses was not delivered as it stands, but as %v", d.Value)
	}
	e.ack(d)
	e.accept(src, after)
}

// What is no event can be read as it was stored, for each subscription that
// met it.
func rcv5Raw(e *env) {
	b, a := e.openAdmin()
	subs := []messaging.Subscription{e.sub(), e.sub()}
	marker := e.event("rcv.raw")
	for _, f := range foreign {
		e.injected(b, f.header, []byte(f.body))
	}
	e.publish(b, marker)
	idle := e.sub()
	idle.Start = messaging.StartNew()
	e.subscribe(b, idle)
	for _, sub := range subs {
		src := e.subscribeReport(b, sub, func(context.Context, error) {})
		e.accept(src, marker)
		if sub.Name == subs[0].Name {
			e.undecodable(a, sub.Name, len(foreign))
			e.closing(src)
		}
	}
	for _, sub := range subs {
		for range 2 {
			for i, bad := range e.undecodable(a, sub.Name, len(foreign)) {
				f := foreign[i]
				switch {
				case bad.Subscription != sub.Name:
					e.failf("%s is kept for the subscription %q, want %q", f.what, bad.Subscription, sub.Name)
				case string(bad.Body) != f.body:
					e.failf("%s is kept with the body %.50q, was injected with %.50q", f.what, bad.Body, f.body)
				case bad.Err == nil:
					e.failf("%s is kept, and nothing said to be wrong with it", f.what)
				}
				for name, values := range f.header {
					if !slices.Equal(bad.Header[name], values) {
						e.failf("%s is kept with %q in its header %s, was injected with %q", f.what, bad.Header[name], name, values)
					}
				}
				clear(bad.Header) // whoever asked may do with it what he wants
				clear(bad.Body)
			}
		}
		e.counts(a, sub, counted{}) // they are no events
	}
	e.undecodable(a, idle.Name, 0)
}
