package event_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/catchment-events/catchment/event"
)

func TestData(t *testing.T) {
	type order struct{ ID int }
	for _, contentType := range []string{"", "application/json", "text/json; charset=utf-8", "Application/Vnd.X+JSON"} {
		e := with(setData(contentType, `{"id":7}`))
		if v, err := event.Data[order](e); err != nil || v.ID != 7 {
			t.Errorf("under %q: %v, %v", contentType, v, err)
		}
		if v, err := event.Data[*order](e); err != nil || v.ID != 7 {
			t.Errorf("under %q: %v, %v", contentType, v, err)
		}
		if v, err := event.Data[string](with(setData(contentType, `"x"`))); err != nil || v != "x" {
			t.Errorf("under %q: %q, %v", contentType, v, err)
		}
	}
	if v, err := event.Data[string](with(setData("Text/Plain", "{x"))); err != nil || v != "{x" {
		t.Errorf("got %q, %v", v, err)
	}
	for _, contentType := range []string{"", "application/json", "application/octet-stream"} {
		e := with(setData(contentType, "1"))
		b, err := event.Data[[]byte](e)
		if err != nil || string(b) != "1" {
			t.Fatalf("got %q, %v", b, err)
		}
		raw, err := event.Data[json.RawMessage](e)
		if err != nil || string(raw) != "1" {
			t.Fatalf("got %q, %v", raw, err)
		}
		b[0], raw[0] = 'x', 'x'
		if string(e.Data()) != "1" {
			t.Error("the result shares memory with the event")
		}
	}
}

func TestDataErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		e    event.Event
		want string
	}{
		{"zero", event.Event{}, "none"},
		{"no data", minimal(), "none"},
		{"version 0.3", with(func(e *event.Event, c *sdk.EventContextV1) { version03(e, c); e.DataEncoded = []byte("1") }), "0.3"},
		{"other type", with(setData("application/xml", "<a/>")), "application/xml"},
		{"not JSON", with(setData("application/json", "{")), "JSON"},
		{"wrong kind", with(setData("application/json", `"x"`)), "int"},
	} {
		if _, err := event.Data[int](test.e); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v", test.name, err)
		}
	}
	if _, err := event.Data[string](with(setData("application/xml", "<a/>"))); err == nil {
		t.Error("a string of XML is not an error")
	}
}
