package messaging_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

func newEvent(t testing.TB, typ string, data any) event.Event {
	t.Helper()
	e, err := event.New("/test", typ, data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestCheckEvents holds the refusals of Publish to their sentinels, and to
// naming the event and what is wrong [EVT-1, EVT-2].
func TestCheckEvents(t *testing.T) {
	good := newEvent(t, "a", nil)
	big := newEvent(t, "a", make([]byte, 100_000))
	noID := event.Clone(good)
	noID.SetID("")
	tests := []struct {
		name   string
		limit  int
		events []event.Event
		is     error
		want   []string
		not    string
	}{
		{"none", messaging.MaxEventSize, nil, nil, nil, ""},
		{"good ones", messaging.MaxEventSize, []event.Event{good, big}, nil, nil, ""},
		{"zero event", messaging.MaxEventSize, []event.Event{{}}, messaging.ErrInvalid, []string{"specversion"}, "event 1"},
		{"no id", messaging.MaxEventSize, []event.Event{noID}, messaging.ErrInvalid, []string{"id"}, "event 1"},
		{"no id, third", messaging.MaxEventSize, []event.Event{good, good, noID, good}, messaging.ErrInvalid, []string{"event 3 of 4", "id"}, ""},
		{"too large", 64 << 10, []event.Event{big}, messaging.ErrTooLarge, []string{"57344 at most"}, "event 1"},
		{"too large, second", 64 << 10, []event.Event{good, big}, messaging.ErrTooLarge, []string{"event 2 of 2"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := messaging.CheckEvents(test.limit, test.events...)
			if !errors.Is(err, test.is) {
				t.Fatalf("CheckEvents = %v, want %v", err, test.is)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("CheckEvents = %q, want it to say %q", err, want)
				}
			}
			if test.not != "" && strings.Contains(err.Error(), test.not) {
				t.Errorf("CheckEvents = %q, must not say %q", err, test.not)
			}
		})
	}
}

// TestCheckEventsLimit holds the limit to the byte, with ReservedSize of it
// kept back [EVT-2].
func TestCheckEventsLimit(t *testing.T) {
	e := newEvent(t, "a", make([]byte, 1000))
	limit := event.Size(e) + messaging.ReservedSize
	if err := messaging.CheckEvents(limit, e); err != nil {
		t.Errorf("an event as large as it may be: %v, want nil", err)
	}
	if err := messaging.CheckEvents(limit-1, e); !errors.Is(err, messaging.ErrTooLarge) {
		t.Errorf("one byte more: %v, want ErrTooLarge", err)
	}
}

// TestErrors holds the sentinels to being apart, and the typed errors to their
// text and cause.
func TestErrors(t *testing.T) {
	if messaging.ErrLost != reactor.ErrLost || messaging.ErrClosed != reactor.ErrClosed {
		t.Error("ErrLost and ErrClosed must be those of package reactor")
	}
	sentinels := []error{
		messaging.ErrInvalid, messaging.ErrTooLarge, messaging.ErrConflict, messaging.ErrFull,
		messaging.ErrNotFound, messaging.ErrUnknown, messaging.ErrLost, messaging.ErrClosed,
	}
	for i, a := range sentinels {
		for j, b := range sentinels {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("errors.Is(%v, %v) is %v", a, b, i != j)
			}
		}
	}
	bad := &messaging.DecodeError{
		Subscription: "billing", Sequence: 7, Err: io.ErrUnexpectedEOF,
		Header: map[string][]string{"ce-id": {"secret"}}, Body: []byte("secret"),
	}
	if got, want := bad.Error(), `messaging: subscription "billing": message 7 does not decode: unexpected EOF`; got != want {
		t.Errorf("DecodeError says %q, want %q", got, want)
	}
	if !errors.Is(bad, io.ErrUnexpectedEOF) {
		t.Error("DecodeError does not wrap its cause")
	}
	for count, want := range map[uint64]string{
		0: `messaging: subscription "billing": events were discarded before it received them`,
		3: `messaging: subscription "billing": 3 events were discarded before it received them`,
	} {
		if got := (&messaging.DiscardedError{Subscription: "billing", Count: count}).Error(); got != want {
			t.Errorf("DiscardedError says %q, want %q", got, want)
		}
	}
}
