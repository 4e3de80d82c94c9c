package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// env is what a check works with: a broker to open, names that nobody else
// has, and steps that end the check when they fail. A check never sees the
// testing.T, so the suite can be run on a faulty broker and asked whether it
// noticed.
//
// A step that fails panics with a failure, which check.run recovers; so checks
// read as what they do. Goroutines of a check are started by env.async.
type env struct {
	Harness
	ctx   context.Context // of the check
	began time.Time
	id    string       // of the run
	count atomic.Int64 // of names and ids

	provider string // the package of the broker, in cls3

	openBroker func() Broker
	openFake   func() Broker // what RUN-10 runs on
	openFull   func() Broker
	discarding func(events int) Broker
	deadFull   func() (b Broker, room func())
	restarted  func(Broker) Broker
	injected   func(b Broker, header map[string][]string, body []byte)

	mu sync.Mutex
	// Below: under mu.
	step    string // what was begun last
	since   time.Time
	premise string // what was done, for failf
}

// failure is what a failed step panics with.
type failure struct{ error }

func newEnv(ctx context.Context, t *testing.T, h Harness) *env {
	return &env{
		Harness:    h,
		ctx:        ctx,
		began:      time.Now(),
		id:         "c" + strconv.FormatUint(rand.Uint64()>>24, 36),
		openBroker: func() Broker { return h.Open(t) },
		openFake:   h.openFake,
		openFull:   func() Broker { return h.OpenFull(t) },
		discarding: func(events int) Broker { return h.OpenDiscarding(t, events) },
		deadFull:   func() (Broker, func()) { return h.OpenDeadFull(t) },
		restarted:  func(b Broker) Broker { return h.Restart(t, b) },
		injected:   func(b Broker, header map[string][]string, body []byte) { h.Inject(t, b, header, body) },
	}
}

// failf ends the check. The text is preceded by the time since it began and by
// what was given.
func (e *env) failf(format string, args ...any) {
	e.mu.Lock()
	premise := e.premise
	e.mu.Unlock()
	if premise != "" {
		premise = ", " + premise
	}
	panic(failure{fmt.Errorf("after %v%s: %w", time.Since(e.began), premise, fmt.Errorf(format, args...))})
}

// given says what the check has done that what comes now is due to, where the
// steps alone do not tell. It holds until the next call; "" ends it.
func (e *env) given(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.premise = fmt.Sprintf(format, args...)
}

// ok ends the check if err is not nil.
func (e *env) ok(err error, format string, args ...any) {
	if err != nil {
		e.failf("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// is ends the check unless err wraps want.
func (e *env) is(err, want error, format string, args ...any) {
	if !errors.Is(err, want) {
		e.failf("%s: want an error that wraps %q, got: %v", fmt.Sprintf(format, args...), want, err)
	}
}

// begin notes what is done now, for the report of a check that hangs.
func (e *env) begin(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.step, e.since = fmt.Sprintf(format, args...), time.Now()
}

func (e *env) doing() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.step == "" {
		return "before its first step"
	}
	return fmt.Sprintf("in %s, begun %v after the check", e.step, e.since.Sub(e.began))
}

// Time.

// prompt is how long something may take that takes no time by the contract. It
// is waited out only when a check fails.
func (e *env) prompt() time.Duration {
	if e.Bubble {
		return e.AckWait / 10
	}
	return 10 * e.AckWait
}

// long is an AckWait that does not run out during a check, unless it is meant
// to: much more than prompt.
func (e *env) long() time.Duration {
	if e.Bubble {
		return 10_000 * e.AckWait
	}
	return 60 * e.AckWait
}

// absence is how long nothing must arrive for nothing to be coming, where no
// deadline says so and no order is promised.
func (e *env) absence() time.Duration {
	if e.Bubble {
		return 100 * e.AckWait
	}
	return e.AckWait / 2
}

// later is the latest time at which something is there that is due at t.
func (e *env) later(t time.Time) time.Time {
	if e.Bubble {
		return t.Add(e.Slack)
	}
	return t.Add(e.Slack + e.prompt())
}

// pause lets time pass.
func (e *env) pause(d time.Duration) {
	e.begin("a pause of %v", d)
	select {
	case <-time.After(d):
	case <-e.ctx.Done():
		e.failf("the check takes too long: %w", e.ctx.Err())
	}
}

// tick lets a little time pass, so that the next event has another time.
func (e *env) tick() { e.pause(max(e.AckWait/200, time.Millisecond)) }

// Things with names.

func (e *env) open() Broker {
	e.begin("Open")
	return e.openBroker()
}

// name returns a subscription's name that nobody had before.
func (e *env) name() string {
	return fmt.Sprintf("%s-%d", e.id, e.count.Add(1))
}

// sub returns the settings of a new subscription whose deliveries are not lost
// while the check takes care of other things.
func (e *env) sub(types ...string) messaging.Subscription {
	return messaging.Subscription{Name: e.name(), Types: types, AckWait: e.long()}
}

// short returns the settings of a new subscription whose deliveries are lost
// after AckWait.
func (e *env) short(types ...string) messaging.Subscription {
	return messaging.Subscription{Name: e.name(), Types: types, AckWait: e.AckWait}
}

// event returns a new valid event with a little data.
func (e *env) event(typ string) event.Event {
	n := e.count.Add(1)
	return e.eventOf(fmt.Sprintf("/conformance/%s", e.id), fmt.Sprintf("%s.%d", e.id, n), typ)
}

// eventOf returns an event of that source and id. It is made by the SDK alone:
// package event is under test, too.
func (e *env) eventOf(source, id, typ string) event.Event {
	var ev event.Event
	ev.SetSpecVersion("1.0")
	v1(&ev).ID = id // SetID trims
	ev.SetSource(source)
	ev.SetType(typ)
	ev.SetTime(time.Now().UTC())
	e.ok(ev.SetData("application/json", map[string]string{"id": id}), "set the data of an event")
	return ev
}

// events returns n new events of a type.
func (e *env) events(n int, typ string) []event.Event {
	out := make([]event.Event, n)
	for i := range out {
		out[i] = e.event(typ)
	}
	return out
}

// Steps.

// subscribe opens a member.
func (e *env) subscribe(b messaging.Subscriber, sub messaging.Subscription) messaging.Source {
	return e.subscribeReport(b, sub, nil)
}

func (e *env) subscribeReport(b messaging.Subscriber, sub messaging.Subscription, report messaging.Report) messaging.Source {
	e.begin("Subscribe(%s)", sub.Name)
	ctx, cancel := context.WithTimeout(e.ctx, e.prompt())
	defer cancel()
	src, err := b.Subscribe(ctx, sub, report)
	e.ok(err, "Subscribe(Subscription{%s})", spell(sub))
	if src == nil {
		e.failf("Subscribe(Subscription{%s}) returned neither a source nor an error", spell(sub))
	}
	return src
}

// refused subscribes, and ends the check unless that is refused with want.
func (e *env) refused(b messaging.Subscriber, sub messaging.Subscription, want error) error {
	e.begin("Subscribe(%s)", sub.Name)
	ctx, cancel := context.WithTimeout(e.ctx, e.prompt())
	defer cancel()
	src, err := b.Subscribe(ctx, sub, nil)
	if err == nil && src != nil {
		src.Close()
	}
	e.is(err, want, "Subscribe(Subscription{%s})", spell(sub))
	return err
}

// spell returns the settings that a check chose, with quotes around strings.
func spell(sub messaging.Subscription) string {
	fields := []string{fmt.Sprintf("Name: %q", sub.Name)}
	add := func(set bool, format string, v any) {
		if set {
			fields = append(fields, fmt.Sprintf(format, v))
		}
	}
	add(sub.Types != nil, "Types: %q", sub.Types)
	add(sub.Start != messaging.StartFirst(), "Start: %v", sub.Start)
	add(sub.AckWait != 0, "AckWait: %v", sub.AckWait)
	add(sub.MaxInFlight != 0, "MaxInFlight: %d", sub.MaxInFlight)
	add(sub.MaxAttempts != 0, "MaxAttempts: %d", sub.MaxAttempts)
	add(sub.Expires != 0, "Expires: %v", sub.Expires)
	add(sub.DeadLettersOf != "", "DeadLettersOf: %q", sub.DeadLettersOf)
	return strings.Join(fields, ", ")
}

// publish publishes, and ends the check on an error.
func (e *env) publish(b messaging.Publisher, events ...event.Event) {
	e.ok(e.tryPublish(b, events...), "Publish of %d events", len(events))
}

func (e *env) tryPublish(b messaging.Publisher, events ...event.Event) error {
	e.begin("Publish of %d events", len(events))
	ctx, cancel := context.WithTimeout(e.ctx, e.prompt())
	defer cancel()
	return b.Publish(ctx, events...)
}

// receiveUntil receives one delivery, or returns nil when nothing came before
// the deadline. Any other error ends the check.
func (e *env) receiveUntil(src messaging.Source, deadline time.Time) *messaging.Delivery {
	e.begin("Receive until %v after the check began", deadline.Sub(e.began))
	ctx, cancel := context.WithDeadline(e.ctx, deadline)
	defer cancel()
	d, err := src.Receive(ctx)
	switch {
	case err == nil && d == nil:
		e.failf("Receive returned neither a delivery nor an error")
	case err == nil:
		return d
	case ctx.Err() == nil:
		e.failf("Receive: %w", err)
	}
	e.is(err, context.DeadlineExceeded, "Receive whose deadline has passed")
	return nil
}

// receive receives one delivery that is there already, or will be at once.
func (e *env) receive(src messaging.Source) *messaging.Delivery {
	d := e.receiveUntil(src, time.Now().Add(e.prompt()))
	if d == nil {
		e.failf("nothing arrived within %v", e.prompt())
	}
	return d
}

// expect receives one delivery, which must be of that event and attempt. An
// event that was retried or released may come after others that were on their
// way by then, so it is expected only where there are none.
func (e *env) expect(src messaging.Source, want event.Event, attempt int) *messaging.Delivery {
	d := e.receiveUntil(src, time.Now().Add(e.prompt()))
	if d == nil {
		e.failf("event %s, attempt %d, did not arrive within %v", want.ID(), attempt, e.prompt())
	}
	e.same(d, want)
	e.attempt(d, attempt)
	return d
}

// acceptAll expects events in any order at attempt 1, and acks them: for a
// subscription in which something was released, or had several members.
func (e *env) acceptAll(src messaging.Source, events ...event.Event) {
	e.contains(e.collect(len(events), src), events)
}

// accept expects events in that order at attempt 1, and acks them: for a
// subscription with one member since creation and nothing released [RCV-3].
func (e *env) accept(src messaging.Source, events ...event.Event) {
	for _, ev := range events {
		e.ack(e.expect(src, ev, 1))
	}
}

// again expects the event once more: not before notBefore, and, for the
// provider's slack, not much after due.
func (e *env) again(src messaging.Source, want event.Event, attempt int, notBefore, due time.Time) *messaging.Delivery {
	last := e.later(due)
	d := e.receiveUntil(src, last.Add(1)) // at last itself it is in time
	now := time.Now()
	switch {
	case d == nil:
		e.failf("event %s, attempt %d, did not arrive until %v after it was due", want.ID(), attempt, now.Sub(due))
	case now.Before(notBefore):
		e.failf("event %s, attempt %d, arrived %v before it was due", d.Value.ID(), d.Info.Attempt, notBefore.Sub(now))
	case now.After(last):
		e.failf("event %s, attempt %d, arrived %v after it was due", d.Value.ID(), d.Info.Attempt, now.Sub(due))
	}
	e.same(d, want)
	e.attempt(d, attempt)
	return d
}

// lost expects the redelivery of d, whose AckWait runs out. It may not come
// before the deadline that the member was told.
func (e *env) lost(src messaging.Source, d *messaging.Delivery, want event.Event, attempt int) *messaging.Delivery {
	e.given("when the deadline of attempt %d had passed, without a settle", d.Info.Attempt)
	defer e.given("")
	return e.again(src, want, attempt, d.Deadline(), d.Deadline())
}

// quiet ends the check if anything arrives before d has passed: in a bubble,
// until a nanosecond before.
func (e *env) quiet(src messaging.Source, d time.Duration) {
	began := time.Now()
	if got := e.receiveUntil(src, began.Add(d-1)); got != nil {
		e.failf("event %s, attempt %d, arrived %v later: nothing should within %v",
			got.Value.ID(), got.Info.Attempt, time.Since(began), d)
	}
}

// fence publishes a marker and expects it to be the next that arrives, in proof
// that nothing else was on its way. It needs a member that is alone, and that
// receives first attempts only, which then come in order [RCV-3].
func (e *env) fence(b messaging.Publisher, src messaging.Source, typ string) {
	marker := e.event(typ)
	e.publish(b, marker)
	e.ack(e.expect(src, marker, 1))
}

// same ends the check unless the delivery is of that event.
func (e *env) same(d *messaging.Delivery, want event.Event) {
	if got := d.Value; got.ID() != want.ID() {
		e.failf("wrong event: %q of type %q, attempt %d, arrived where %q of type %q should", got.ID(), got.Type(), d.Info.Attempt, want.ID(), want.Type())
	}
	if diff := difference(want, d.Value); diff != "" {
		e.failf("wrong event: %s", diff)
	}
}

func (e *env) attempt(d *messaging.Delivery, want int) {
	if d.Info.Attempt != want {
		e.failf("event %s has attempt %d, want %d", d.Value.ID(), d.Info.Attempt, want)
	}
}

// settled is a context for a settle.
func (e *env) settling(step string) (context.Context, context.CancelFunc) {
	e.begin("%s", step)
	return context.WithTimeout(e.ctx, e.prompt())
}

func (e *env) ack(d *messaging.Delivery) {
	ctx, cancel := e.settling("Ack")
	defer cancel()
	e.ok(d.Ack(ctx), "Ack of event %s", d.Value.ID())
}

func (e *env) retry(d *messaging.Delivery, after time.Duration) {
	ctx, cancel := e.settling("Retry")
	defer cancel()
	e.ok(d.Retry(ctx, after), "Retry of event %s after %v", d.Value.ID(), after)
}

// retryAfter retries, and returns from when on the event may come again and
// when it is due at the latest.
func (e *env) retryAfter(d *messaging.Delivery, after time.Duration) (from, due time.Time) {
	from = time.Now().Add(after)
	e.retry(d, after)
	return from, time.Now().Add(after)
}

func (e *env) reject(d *messaging.Delivery, reason string) {
	ctx, cancel := e.settling("Reject")
	defer cancel()
	e.ok(d.Reject(ctx, reason), "Reject of event %s", d.Value.ID())
}

func (e *env) release(d *messaging.Delivery) {
	ctx, cancel := e.settling("Release")
	defer cancel()
	e.ok(d.Release(ctx), "Release of event %s", d.Value.ID())
}

// closing closes a source or a broker, which must not take long.
func (e *env) closing(c interface{ Close() error }) {
	e.begin("Close of a %T", c)
	e.ok(c.Close(), "Close")
}

// async runs f in a goroutine. The function that it returns waits for f and
// ends the check if f failed; a check calls it once.
func (e *env) async(f func()) (wait func()) {
	failed := make(chan any, 1)
	go func() {
		defer func() { failed <- recover() }()
		f()
	}()
	return func() {
		if p := <-failed; p != nil {
			panic(p)
		}
	}
}

// takes ends the check unless f returns within d, by which it proves that f
// honours its context or otherwise does not wait.
func (e *env) takes(d time.Duration, what string, f func()) {
	done := make(chan struct{})
	wait := e.async(func() { defer close(done); f() })
	select {
	case <-done:
		wait()
	case <-time.After(d):
		e.failf("%s has not returned %v later", what, d)
	}
}

// collect receives and acks n deliveries, from any of the sources, and returns
// their events by id. A second delivery of an event ends the check, and so does
// any attempt but the first.
func (e *env) collect(n int, sources ...messaging.Source) map[string]event.Event {
	got, _ := e.share(n, 0, sources...)
	return got
}

// share is collect that keeps each delivery for a time before it acks it, and
// tells how many of them each source had.
func (e *env) share(n int, keep time.Duration, sources ...messaging.Source) (map[string]event.Event, []int) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var mu sync.Mutex
	got := make(map[string]event.Event)
	counts := make([]int, len(sources))
	last := time.Now()
	timeout := time.AfterFunc(e.prompt(), cancel) // set anew by each arrival
	defer timeout.Stop()

	var waits []func()
	for i, src := range sources {
		waits = append(waits, e.async(func() {
			for {
				e.begin("Receive of one of %d sources", len(sources))
				d, err := src.Receive(ctx)
				if err != nil && ctx.Err() != nil {
					return
				}
				e.ok(err, "Receive")
				timeout.Reset(e.prompt() + keep)
				if keep > 0 {
					e.pause(keep)
				}
				e.attempt(d, 1)
				e.ack(d)
				mu.Lock()
				_, twice := got[d.Value.ID()+" "+d.Value.Source()]
				got[d.Value.ID()+" "+d.Value.Source()] = d.Value
				counts[i]++
				last = time.Now()
				all := len(got) == n
				mu.Unlock()
				if twice {
					e.failf("event %s was delivered twice", d.Value.ID())
				}
				if all {
					cancel()
				}
			}
		}))
	}
	for _, wait := range waits {
		wait()
	}
	if len(got) < n {
		e.failf("%d of %d events arrived, the last %v after the check began; the next should within %v",
			len(got), n, last.Sub(e.began), e.prompt()+keep)
	}
	return got, counts
}

// contains ends the check unless got is made of those events.
func (e *env) contains(got map[string]event.Event, want []event.Event) {
	for _, w := range want {
		g, ok := got[w.ID()+" "+w.Source()]
		if !ok {
			e.failf("event %s did not arrive", w.ID())
		}
		if diff := difference(w, g); diff != "" {
			e.failf("wrong event: %s", diff)
		}
	}
	if len(got) != len(want) {
		e.failf("%d events arrived, want %d", len(got), len(want))
	}
}

// difference says in what an event differs from the one that was published; ""
// if they are equal. It compares by itself what event.Equal compares.
func difference(want, got event.Event) string {
	if (want.Context == nil) != (got.Context == nil) {
		return fmt.Sprintf("one of them is the zero Event: published %v, arrived %v", want.Context, got.Context)
	}
	for _, a := range []struct {
		name      string
		want, got any
	}{
		{"id", want.ID(), got.ID()},
		{"source", want.Source(), got.Source()},
		{"specversion", want.SpecVersion(), got.SpecVersion()},
		{"type", want.Type(), got.Type()},
		{"subject", want.Subject(), got.Subject()},
		{"datacontenttype", want.DataContentType(), got.DataContentType()},
		{"dataschema", want.DataSchema(), got.DataSchema()},
		{"time", nanos(want.Time()), nanos(got.Time())},
		{"number of extensions", len(want.Extensions()), len(got.Extensions())},
	} {
		if a.want != a.got {
			return fmt.Sprintf("event %q published with %s %#v, arrived with %#v", want.ID(), a.name, a.want, a.got)
		}
	}
	extensions := got.Extensions()
	for name, v := range want.Extensions() {
		w, err := canonical(v)
		if err != nil {
			return fmt.Sprintf("the suite published an extension %s of no valid type: %v", name, err)
		}
		if g, ok := extensions[name]; !ok || g != any(w) {
			return fmt.Sprintf("event %q published with extension %s %#v, arrived with %#v (%T)", want.ID(), name, w, g, g)
		}
	}
	if !bytes.Equal(want.Data(), got.Data()) {
		return fmt.Sprintf("event %q published with %d bytes of data, arrived with %d: %s",
			want.ID(), len(want.Data()), len(got.Data()), firstDifference(want.Data(), got.Data()))
	}
	if !event.Equal(want, got) {
		return fmt.Sprintf("event %q: event.Equal is false", want.ID())
	}
	return ""
}

func firstDifference(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("they differ from byte %d on, %.20q and %.20q", i, a[i:], b[i:])
}

// nanos returns the nanoseconds of a time, and those of no time as 0.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// at returns the element of index i, or the zero value.
func at[T any](s []T, i int) (v T) {
	if i < len(s) {
		v = s[i]
	}
	return v
}
