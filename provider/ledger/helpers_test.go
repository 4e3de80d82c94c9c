package ledger_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
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

// status returns what the broker says of a subscription.
func status(t testing.TB, b *ledger.Broker, name string) messaging.Status {
	t.Helper()
	all, err := b.Subscriptions(context.WithoutCancel(t.Context()))
	want(t, err)
	for _, s := range all {
		if s.Name == name && s.DeadLettersOf == "" {
			return s
		}
	}
	t.Fatalf("there is no subscription %q", name)
	return messaging.Status{}
}

// A stalled disk lets the syncs of files whose path contains some text wait, while
// it is on, until gate is closed.
type stalled struct {
	text string
	on   atomic.Bool
	gate chan struct{}
}

func stall(text string) *stalled { return &stalled{text: text, gate: make(chan struct{})} }

func (s *stalled) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		if s.on.Load() && strings.Contains(op.Path, s.text) {
			<-s.gate
		}
	}
	return nil
}

func (s *stalled) String() string { return "stalled" }

// goOn ends the stall.
func (s *stalled) goOn() {
	s.on.Store(false)
	close(s.gate)
}
