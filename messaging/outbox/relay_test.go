package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/outbox"
	"github.com/catchment-events/catchment/reactor"
)

// publishes is a publisher that does what a test says, and notes the calls.
type publishes struct {
	calls []string
	do    func(ids []string) error
}

func (p *publishes) Publish(_ context.Context, events ...event.Event) error {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID())
	}
	p.calls = append(p.calls, strings.Join(ids, " "))
	return p.do(ids)
}

// settles notes how a delivery was settled.
type settles struct{ outcome reactor.Outcome }

func (s *settles) Settle(_ context.Context, o reactor.Outcome) error {
	s.outcome = o
	return nil
}

func (s *settles) Extend(context.Context) (time.Time, error) { return time.Time{}, nil }

// batchOf returns deliveries of events: "a1" has key a.
func batchOf(t *testing.T, ids ...string) (batch []*messaging.Delivery, settlers []*settles) {
	for _, id := range ids {
		e, err := event.New("/test", "thing", nil)
		if err != nil {
			t.Fatal(err)
		}
		e.SetID(id)
		e.SetSubject(id[:1])
		s := &settles{}
		settlers = append(settlers, s)
		batch = append(batch, reactor.NewDelivery(e, reactor.Info{Attempt: 1}, time.Time{}, s))
	}
	return batch, settlers
}

func TestPublishTo(t *testing.T) {
	away := errors.New("away")
	unknown := fmt.Errorf("broken: %w", messaging.ErrUnknown)
	for _, tt := range []struct {
		name  string
		batch string
		do    func(ids []string) error
		calls []string
		fate  string // of each: ok, failed, rejected, or released untried
	}{
		{"one call", "a1 b1 c1", func([]string) error { return nil }, []string{"a1 b1 c1"}, "ok ok ok"},
		{"a call for each event of a key", "a1 a2 b1 a3", func([]string) error { return nil },
			[]string{"a1", "a2 b1", "a3"}, "ok ok ok ok"},
		{"one fails", "a1 b1 a2 b2", func(ids []string) error {
			if ids[0] == "a1" {
				return &reactor.BatchError{Errors: []error{unknown, nil}}
			}
			return nil
		}, []string{"a1 b1", "b2"}, "failed ok released ok"},
		{"all fail", "a1 b1 a2", func([]string) error { return away }, []string{"a1 b1"}, "failed failed released"},
		{"one is refused in a BatchError", "a1 b1 a2", func(ids []string) error {
			if ids[0] == "a1" {
				return &reactor.BatchError{Errors: []error{messaging.ErrTooLarge, nil}}
			}
			return nil
		}, []string{"a1 b1"}, "rejected ok released"},
		{"one refuses the call", "a1 b1 c1 d1", func(ids []string) error {
			if strings.Contains(strings.Join(ids, " "), "c1") {
				return fmt.Errorf("event 3: %w", messaging.ErrInvalid)
			}
			return nil
		}, []string{"a1 b1 c1 d1", "a1 b1", "c1 d1", "c1", "d1"}, "ok ok rejected ok"},
		{"a BatchError of another length", "a1 b1", func([]string) error { return &reactor.BatchError{Errors: []error{nil}} },
			[]string{"a1 b1"}, "failed failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			batch, settlers := batchOf(t, strings.Fields(tt.batch)...)
			p := &publishes{do: tt.do}
			err := outbox.PublishTo(p)(t.Context(), batch)
			var each *reactor.BatchError
			if err != nil && !errors.As(err, &each) {
				t.Fatalf("%v is no BatchError", err)
			}
			var fate []string
			for i, s := range settlers {
				var e error
				if each != nil {
					e = each.Errors[i]
				}
				switch {
				case s.outcome.Result == reactor.Released:
					fate = append(fate, "released")
				case e == nil:
					fate = append(fate, "ok")
				case errors.Is(e, messaging.ErrInvalid), errors.Is(e, messaging.ErrTooLarge):
					fate = append(fate, "rejected")
				default:
					fate = append(fate, "failed")
				}
			}
			if diff := cmp.Diff(tt.calls, p.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.fate, strings.Join(fate, " ")); diff != "" {
				t.Errorf("fate (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPublishToEnds has the context end between two calls: what was not tried is
// released.
func TestPublishToEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	batch, settlers := batchOf(t, "a1", "a2", "b1")
	p := &publishes{do: func([]string) error { cancel(); return nil }}
	if err := outbox.PublishTo(p)(ctx, batch); err != nil {
		t.Fatal(err)
	}
	for i, want := range []reactor.Result{0, reactor.Released, reactor.Released} {
		if got := settlers[i].outcome.Result; got != want {
			t.Errorf("event %d: %v, want %v", i, got, want)
		}
	}
}
