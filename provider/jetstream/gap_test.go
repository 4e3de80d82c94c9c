package jetstream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

// TestDiscarded loses events to the log's bound before a subscription has
// received them.
func TestDiscarded(t *testing.T) {
	t.Parallel()
	srv := start(t)
	for _, tt := range []struct {
		name  string
		types []string
		want  uint64
	}{
		{"every type", nil, 20},
		{"some types", []string{"a"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := open(t, srv, jetstream.Config{MaxEvents: 10, DiscardOldest: true})
			sub := messaging.Subscription{Name: "s", Types: tt.types, MaxInFlight: 2}
			reports := make(chan error, 100)
			report := func(_ context.Context, err error) { reports <- err }
			src, err := b.Subscribe(t.Context(), sub, report)
			if err != nil {
				t.Fatal(err)
			}
			receive := func(n int) {
				t.Helper()
				for range n {
					d, err := src.Receive(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if err := d.Ack(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			publish(t, b, 5, nil)
			receive(5)
			if err := src.Close(); err != nil {
				t.Fatal(err)
			}
			events := make([]event.Event, 30)
			for i := range events {
				events[i] = makeEvent(t, "a", nil)
			}
			if err := b.Publish(t.Context(), events...); err != nil {
				t.Fatal(err)
			}
			if src, err = b.Subscribe(t.Context(), sub, report); err != nil {
				t.Fatal(err)
			}
			receive(10)
			select {
			case err := <-reports:
				d, ok := errors.AsType[*messaging.DiscardedError](err)
				if !ok || d.Count != tt.want || d.Subscription != "s" {
					t.Errorf("report %v, want a DiscardedError of %d", err, tt.want)
				}
			case <-time.After(5 * time.Second):
				t.Error("no report")
			}
			publish(t, b, 8, nil)
			receive(8)
			time.Sleep(1500 * time.Millisecond) // longer than a member takes to look
			if len(reports) > 0 {
				t.Errorf("a report though nothing was lost: %v", <-reports)
			}
		})
	}
}
