package messaging_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

func TestTyped(t *testing.T) {
	e, err := event.New("/shop", "order.placed", order{ID: "A1", Total: 42})
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	var id string
	var got order
	h := messaging.Typed(func(_ context.Context, e event.Event, o order) error {
		id, got = e.ID(), o
		return boom
	})
	if err := h(t.Context(), e); err != boom {
		t.Errorf("returned %v, want %v", err, boom)
	}
	if want := (order{ID: "A1", Total: 42}); got != want || id != e.ID() {
		t.Errorf("handled %+v of %q, want %+v of %q", got, id, want, e.ID())
	}
}

// An order that does not decode is not handled, and its reason tells it from
// others.
func TestTypedRejects(t *testing.T) {
	data := func(contentType, data string) event.Event {
		e := ofType("order.placed")
		e.SetID("17")
		e.SetDataContentType(contentType)
		e.DataEncoded = []byte(data)
		return e
	}
	long := data("application/json", `{"id": 1}`)
	long.SetID(strings.Repeat("x", 5000))
	for name, test := range map[string]struct {
		e    event.Event
		want []string
	}{
		"no data":      {data("application/json", ""), []string{`"17"`, `"order.placed"`, "messaging_test.order", "has none"}},
		"not JSON":     {data("application/json", `{"id"`), []string{`"17"`, `"order.placed"`, "unexpected end"}},
		"other JSON":   {data("application/json", `{"id": 1}`), []string{`"17"`, `"order.placed"`, "cannot unmarshal number"}},
		"not of JSON":  {data("text/csv", `A1,42`), []string{`"17"`, `"order.placed"`, "text/csv"}},
		"a long id":    {long, []string{`"xxx`, "cannot unmarshal number"}},
		"a zero event": {event.Event{}, []string{`""`, "has none"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := settled(t, test.e, messaging.Typed(func(context.Context, event.Event, order) error {
				t.Error("was handled")
				return nil
			}))
			if o.Result != reactor.Rejected {
				t.Errorf("settled by %v, want %v", o.Result, reactor.Rejected)
			}
			for _, want := range test.want {
				if !strings.Contains(o.Reason, want) || len(o.Reason) > messaging.MaxReason {
					t.Errorf("the reason is %q, want it to have %s and to fit", o.Reason, want)
				}
			}
		})
	}
}

func TestTypedNil(t *testing.T) {
	if panicOf(func() { messaging.Typed[order](nil) }) == "" {
		t.Error("a nil handler does not panic")
	}
}

func TestPartitionKey(t *testing.T) {
	with := func(change func(e *event.Event, c *sdk.EventContextV1)) event.Event {
		e := ofType("order.placed")
		change(&e, e.Context.(*sdk.EventContextV1))
		return e
	}
	for _, test := range []struct {
		name string
		e    event.Event
		want string
	}{
		{"partitionkey", with(func(e *event.Event, _ *sdk.EventContextV1) { e.SetExtension("partitionkey", "k"); e.SetSubject("s") }), "k"},
		{"of another type", with(func(e *event.Event, _ *sdk.EventContextV1) { e.SetExtension("partitionkey", 7) }), "7"},
		{"empty", with(func(e *event.Event, _ *sdk.EventContextV1) { e.SetExtension("partitionkey", ""); e.SetSubject("s") }), "s"},
		{"no attribute's", with(func(e *event.Event, c *sdk.EventContextV1) {
			c.Extensions = map[string]any{"partitionkey": (*types.URI)(nil)}
			e.SetSubject("s")
		}), "s"},
		{"subject", with(func(e *event.Event, _ *sdk.EventContextV1) { e.SetSubject("s") }), "s"},
		{"source", ofType("order.placed"), "/test"},
		{"source with escapes", with(func(_ *event.Event, c *sdk.EventContextV1) { c.Source = types.URIRef{URL: url.URL{Path: "/a b"}} }), "/a%20b"},
		{"zero event", event.Event{}, ""},
		{"nil context", event.Event{Context: (*sdk.EventContextV1)(nil)}, ""},
	} {
		if got := messaging.PartitionKey(test.e); got != test.want {
			t.Errorf("%s: key is %q, want %q", test.name, got, test.want)
		}
	}
	e := with(func(e *event.Event, _ *sdk.EventContextV1) { e.SetExtension("partitionkey", "k") })
	if n := testing.AllocsPerRun(100, func() { messaging.PartitionKey(e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
