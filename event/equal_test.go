package event_test

import (
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
)

func TestEqual(t *testing.T) {
	for name, change := range valid {
		if e := with(change); !event.Equal(e, with(change)) || !event.Equal(e, event.Clone(e)) {
			t.Errorf("%s: not equal to itself", name)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	canonical := full()
	for name, value := range context(t, canonical).Extensions {
		s, err := types.Format(value)
		if err != nil {
			t.Fatal(err)
		}
		canonical.SetExtension(name, s)
	}
	for _, test := range []struct {
		name string
		a, b event.Event
	}{
		{"zero", event.Event{}, event.Event{}},
		{"empty data", with(setData("a/b", "")), with(func(_ *event.Event, c *sdk.EventContextV1) { c.DataContentType = pointer("a/b") })},
		{"zones", with(func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(at) }),
			with(func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(at.In(time.FixedZone("", 3600))) })},
		{"zero time", minimal(), with(func(_ *event.Event, c *sdk.EventContextV1) { c.Time = &types.Timestamp{} })},
		{"canonical extensions", full(), canonical},
		{"integers", with(setExtension("a", 7)), with(setExtension("a", uint8(7)))},
		{"no extensions", minimal(), with(func(_ *event.Event, c *sdk.EventContextV1) { c.Extensions = map[string]any{} })},
		{"source as reported", with(setSource("a b")), with(setSource("a%20b"))},
		{"flags", minimal(), with(func(e *event.Event, _ *sdk.EventContextV1) { e.DataBase64 = true })},
		{"version 0.3", with(version03), with(version03)},
	} {
		if !event.Equal(test.a, test.b) || !event.Equal(test.b, test.a) {
			t.Errorf("%s: not equal", test.name)
		}
	}
}

func version03(e *event.Event, _ *sdk.EventContextV1) { e.SetSpecVersion("0.3") }

func TestEqualSaysNo(t *testing.T) {
	for _, test := range []struct {
		name string
		b    change
	}{
		{"context", func(e *event.Event, _ *sdk.EventContextV1) { e.Context = nil }},
		{"nil context", func(e *event.Event, _ *sdk.EventContextV1) { e.Context = (*sdk.EventContextV1)(nil) }},
		{"specversion", version03},
		{"id", func(_ *event.Event, c *sdk.EventContextV1) { c.ID = "2" }},
		{"source", setSource("/Orders")},
		{"type", func(_ *event.Event, c *sdk.EventContextV1) { c.Type = "t" }},
		{"subject", func(_ *event.Event, c *sdk.EventContextV1) { c.Subject = pointer("s") }},
		{"datacontenttype", setData("a/b", "")},
		{"dataschema", func(e *event.Event, _ *sdk.EventContextV1) { e.SetDataSchema("x:y") }},
		{"time", func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(time.Unix(0, 1)) }},
		{"extension", setExtension("a", "")},
		{"data", setData("", "1")},
	} {
		if event.Equal(minimal(), with(test.b)) || event.Equal(with(test.b), minimal()) {
			t.Errorf("%s: equal", test.name)
		}
	}
	for _, test := range []struct {
		name string
		a, b change
	}{
		{"value", setExtension("a", "1"), setExtension("a", "2")},
		{"name", setExtension("a", "1"), setExtension("b", "1")},
		{"value without a string", setExtension("a", struct{}{}), setExtension("a", struct{}{})},
		{"nanosecond", func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(time.Unix(0, 1)) },
			func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(time.Unix(0, 2)) }},
		{"space around data", setData("", "1"), setData("", "1 ")},
	} {
		if event.Equal(with(test.a), with(test.b)) || event.Equal(with(test.b), with(test.a)) {
			t.Errorf("%s: equal", test.name)
		}
	}
}
