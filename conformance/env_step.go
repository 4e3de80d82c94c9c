package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

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

// publishIn publishes in calls of so many events each.
func (e *env) publishIn(b messaging.Publisher, size int, events []event.Event) {
	for chunk := range slices.Chunk(events, size) {
		e.publish(b, chunk...)
	}
}

func (e *env) tryPublish(b messaging.Publisher, events ...event.Event) error {
	e.begin("Publish of %d events", len(events))
	ctx, cancel := context.WithTimeout(e.ctx, e.prompt())
	defer cancel()
	return b.Publish(ctx, events...)
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
