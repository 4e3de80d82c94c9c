package ledger_test

import (
	"context"
	"errors"
	"testing"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

func want(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want one that wraps %v", err, target)
	}
}

func newEvent(t testing.TB, id string) event.Event {
	t.Helper()
	e, err := event.New("/test", "test", nil)
	want(t, err)
	e.SetID(id)
	return e
}

// publish publishes events of those ids.
func publish(t testing.TB, b messaging.Publisher, ids ...string) {
	t.Helper()
	events := make([]event.Event, len(ids))
	for i, id := range ids {
		events[i] = newEvent(t, id)
	}
	want(t, b.Publish(context.WithoutCancel(t.Context()), events...))
}
