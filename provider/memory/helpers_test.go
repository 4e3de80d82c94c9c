package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// newEvent returns an event of that id; its type is "test".
func newEvent(t testing.TB, id string) event.Event {
	t.Helper()
	e, err := event.New("/test", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	e.SetID(id)
	return e
}

func newEvents(t testing.TB, ids ...string) (events []event.Event) {
	t.Helper()
	for _, id := range ids {
		events = append(events, newEvent(t, id))
	}
	return events
}

// publish stores events of those ids.
func publish(t testing.TB, b *memory.Broker, ids ...string) {
	t.Helper()
	if err := b.Publish(t.Context(), newEvents(t, ids...)...); err != nil {
		t.Fatalf("publish %q: %v", ids, err)
	}
}

func subscribe(t testing.TB, b *memory.Broker, sub messaging.Subscription) messaging.Source {
	t.Helper()
	src, err := b.Subscribe(t.Context(), sub, func(_ context.Context, err error) { t.Errorf("reported: %v", err) })
	if err != nil {
		t.Fatalf("subscribe %+v: %v", sub, err)
	}
	return src
}

// subscribeReporting is subscribe with the reports collected.
func subscribeReporting(t testing.TB, b *memory.Broker, sub messaging.Subscription) (messaging.Source, *[]error) {
	t.Helper()
	var reports []error
	src, err := b.Subscribe(t.Context(), sub, func(_ context.Context, err error) { reports = append(reports, err) })
	if err != nil {
		t.Fatalf("subscribe %+v: %v", sub, err)
	}
	return src, &reports
}

// poll returns what there is to receive now, or nil; for bubbles.
func poll(t testing.TB, src messaging.Source) *messaging.Delivery {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		d   *messaging.Delivery
		err error
	}
	done := make(chan result, 1)
	go func() {
		d, err := src.Receive(ctx)
		done <- result{d, err}
	}()
	synctest.Wait()
	cancel()
	r := <-done
	if r.err != nil && !errors.Is(r.err, context.Canceled) {
		t.Fatalf("receive: %v", r.err)
	}
	return r.d
}

// receive wants the event of that id, in that attempt, now.
func receive(t testing.TB, src messaging.Source, id string, attempt int) *messaging.Delivery {
	t.Helper()
	d := poll(t, src)
	if d == nil {
		t.Fatalf("received nothing, want %s", id)
	}
	if d.Value.ID() != id || d.Info.Attempt != attempt {
		t.Fatalf("received %s in attempt %d, want %s in attempt %d", d.Value.ID(), d.Info.Attempt, id, attempt)
	}
	return d
}

// receiveNothing wants there to be nothing now.
func receiveNothing(t testing.TB, src messaging.Source) {
	t.Helper()
	if d := poll(t, src); d != nil {
		t.Fatalf("received %s in attempt %d, want nothing", d.Value.ID(), d.Info.Attempt)
	}
}

// receiveAt wants the event of that id after exactly that time, by a Receive
// that waits for it.
func receiveAt(t testing.TB, src messaging.Source, id string, attempt int, after time.Duration) *messaging.Delivery {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), after+time.Hour)
	defer cancel()
	d, err := src.Receive(ctx)
	if err != nil {
		t.Fatalf("receive: %v, want %s", err, id)
	}
	if got := time.Since(began); got != after || d.Value.ID() != id || d.Info.Attempt != attempt {
		t.Fatalf("received %s in attempt %d after %v, want %s in attempt %d after %v", d.Value.ID(), d.Info.Attempt, got, id, attempt, after)
	}
	return d
}

// want fails the test unless err is nil.
func want(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErr fails the test unless err wraps target.
func wantErr(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}
