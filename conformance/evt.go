package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

var evtChecks = map[string][]check{
	"EVT-1": {
		{name: "refused", do: evt1Refused},
		{name: "accepted", do: evt1Accepted},
	},
	"EVT-2": {
		{name: "attributes", do: evt2Attributes},
		{name: "size", do: evt2Size},
	},
	"EVT-3": {
		{name: "attributes", do: evt3Attributes},
		{name: "data", do: evt3Data},
		{name: "types", do: evt3Types},
		{name: "redelivered", do: evt3Redelivered},
		{name: "sizes", do: evt3Sizes},
	},
	"EVT-4": {{name: "after_publish", do: evt4}},
	"EVT-5": {
		{name: "redelivery", do: evt5Redelivery},
		{name: "subscriptions", do: evt5Subscriptions},
		{name: "injected", do: evt5Injected, inject: true},
	},
}

// canonical returns the canonical string of an attribute's value.
func canonical(v any) (string, error) { return types.Format(v) }

// v1 returns the context of an event that the suite made.
func v1(ev *event.Event) *sdk.EventContextV1 { return ev.Context.(*sdk.EventContextV1) }

// An invalid event is a valid one that something was done to.
type invalid struct {
	attribute string // what the error has to name; "": nothing
	what      string
	spoil     func(*event.Event)
}

func withExtension(name string, value any) func(*event.Event) {
	return func(ev *event.Event) { v1(ev).Extensions = map[string]any{name: value} }
}

func withData(contentType, data string) func(*event.Event) {
	return func(ev *event.Event) {
		v1(ev).DataContentType = &contentType
		ev.DataEncoded = []byte(data)
	}
}

var invalids = []invalid{
	{"", "nothing set, the zero Event", func(ev *event.Event) { *ev = event.Event{} }},
	{"", "a context that is a nil pointer", func(ev *event.Event) { ev.Context = (*sdk.EventContextV1)(nil) }},
	{"specversion", "version 0.3", func(ev *event.Event) { ev.Context = ev.Context.AsV03() }},
	{"id", "no id", func(ev *event.Event) { v1(ev).ID = "" }},
	{"source", "no source", func(ev *event.Event) { v1(ev).Source = types.URIRef{} }},
	{"type", "no type", func(ev *event.Event) { v1(ev).Type = "" }},
	{"subject", "an empty subject", func(ev *event.Event) { v1(ev).Subject = new(string) }},
	{"datacontenttype", "no media type", func(ev *event.Event) { v1(ev).DataContentType = ptr("nonsense") }},
	{"dataschema", "a relative dataschema", func(ev *event.Event) {
		v1(ev).DataSchema = &types.URI{URL: url.URL{Path: "/schema"}}
	}},
	{"subject", "FieldErrors", func(ev *event.Event) {
		ev.FieldErrors = map[string]error{"subject": errors.New("was refused")}
	}},
	{"source", "a setter that refused", func(ev *event.Event) { ev.SetSource("%zz") }},

	{"data", "an extension named data", withExtension("data", "x")},
	{"data_base64", "an extension named data_base64", withExtension("data_base64", "eA==")},
	{"upperCase", "an extension with an upper-case letter", withExtension("upperCase", "x")},
	{"with-dash", "an extension with a dash", withExtension("with-dash", "x")},
	{"nicode", "an extension with a letter that is not ASCII", withExtension("ünicode", "x")},
	{"", "an extension without a name", withExtension("", "x")},
	{"number", "an extension of no CloudEvents type", withExtension("number", struct{}{})},
	{"number", "an integer out of range", withExtension("number", int64(1)<<31)},

	{"id", "a line feed in id", func(ev *event.Event) { v1(ev).ID = "a\nb" }},
	{"id", "NUL in id", func(ev *event.Event) { v1(ev).ID = "a\x00" }},
	{"id", "invalid UTF-8 in id", func(ev *event.Event) { v1(ev).ID = "a\xff" }},
	{"type", "a carriage return in type", func(ev *event.Event) { v1(ev).Type = "a\rb" }},
	{"type", "DEL in type", func(ev *event.Event) { v1(ev).Type = "a\x7f" }},
	{"type", "invalid UTF-8 in type", func(ev *event.Event) { v1(ev).Type = "a\xc3" }},
	{"source", "a control character in source", func(ev *event.Event) {
		v1(ev).Source = types.URIRef{URL: url.URL{Scheme: "urn", Opaque: "a\nb"}}
	}},
	{"source", "invalid UTF-8 in source", func(ev *event.Event) {
		v1(ev).Source = types.URIRef{URL: url.URL{Scheme: "urn", Opaque: "a\xff"}}
	}},
	{"subject", "a tab in subject", func(ev *event.Event) { v1(ev).Subject = ptr("a\tb") }},
	{"subject", "a C1 control character in subject", func(ev *event.Event) { v1(ev).Subject = ptr("a\u0085b") }},
	{"subject", "invalid UTF-8 in subject", func(ev *event.Event) { v1(ev).Subject = ptr("\xed\xa0\x80") }},
	{"datacontenttype", "a line feed in datacontenttype", func(ev *event.Event) {
		v1(ev).DataContentType = ptr("text/plain;a=\"\n\"")
	}},
	{"dataschema", "a control character in dataschema", func(ev *event.Event) {
		v1(ev).DataSchema = &types.URI{URL: url.URL{Scheme: "urn", Opaque: "a\x01"}}
	}},
	{"ext", "a line feed in an extension", withExtension("ext", "a\r\nce-id: b")},
	{"ext", "invalid UTF-8 in an extension", withExtension("ext", "a\x80")},

	{"data", "no JSON under application/json", withData("application/json", "{")},
	{"data", "no JSON under text/JSON", withData("text/JSON", "nope")},
	{"data", "no JSON under a +json type", withData("application/vnd.example+json", "\x00")},
	{"data", "no JSON under a +JSON type with a parameter", withData("Application/X+JSON; charset=utf-8", "'x'")},
	{"data", "two values under application/json", withData("application/json", "1 2")},
}

func ptr(s string) *string { return &s }

func evt1Refused(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	for _, c := range invalids {
		ev := e.event("evt.refused")
		c.spoil(&ev)
		err := e.tryPublish(b, ev)
		e.is(err, messaging.ErrInvalid, "Publish of an event with %s", c.what)
		if !strings.Contains(err.Error(), c.attribute) {
			e.failf("Publish of an event with %s: the error does not name the attribute %s: %v", c.what, c.attribute, err)
		}
	}
	e.fence(b, src, "evt.refused")
}

func evt1Accepted(e *env) {
	var events []event.Event
	for _, contentType := range []string{"", "application/json", "text/xml", "application/x+json", "application/octet-stream"} {
		ev := e.event("evt.accepted")
		ev.DataEncoded = nil
		v1(&ev).DataContentType = nil
		if contentType != "" {
			v1(&ev).DataContentType = &contentType
		}
		events = append(events, ev)
	}
	for _, c := range [][2]string{
		{"application/json", " {\"a\" : [1, 2.50, \"\\u0041\"]}\n"},
		{"application/json; charset=utf-8", "null"},
		{"application/jsonp", "{"},
		{"application/json-seq", "{"},
		{"text/plain", "{"},
	} {
		ev := e.event("evt.accepted")
		withData(c[0], c[1])(&ev)
		events = append(events, ev)
	}
	b := e.open()
	src := e.subscribe(b, e.sub())
	for _, ev := range events {
		e.publish(b, ev)
	}
	e.accept(src, events...)
}

func evt2Attributes(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())

	typ := e.event(strings.Repeat("t", 255))
	tokens := e.event(strings.Repeat("t.", 127) + "t")
	many := e.event("evt.many")
	for i := range 64 {
		many.SetExtension(fmt.Sprintf("ext%d", i), "x")
	}
	big := e.event("evt.big")
	padAttributes(&big, 32<<10)
	events := []event.Event{typ, tokens, many, big}
	for _, ev := range events {
		e.publish(b, ev)
	}

	for _, c := range []struct {
		what  string
		spoil func(*event.Event)
	}{
		{"a type of 256 bytes", func(ev *event.Event) { ev.SetType(strings.Repeat("t", 256)) }},
		{"a type of 128 characters and 256 bytes", func(ev *event.Event) { ev.SetType(strings.Repeat("ü", 128)) }},
		{"65 extensions", func(ev *event.Event) {
			for i := range 65 {
				ev.SetExtension(fmt.Sprintf("ext%d", i), "x")
			}
		}},
		{"attributes of 32 KiB and a byte", func(ev *event.Event) { padAttributes(ev, 32<<10+1) }},
		{"attributes of 100 KiB", func(ev *event.Event) { padAttributes(ev, 100<<10) }},
		{"attributes of 11 KiB that take three times as much encoded", func(ev *event.Event) {
			ev.SetExtension("ext", strings.Repeat(" ", 11<<10))
		}},
		{"attributes of 2 MiB", func(ev *event.Event) { padAttributes(ev, 2<<20) }},
	} {
		ev := e.event("evt.refused")
		c.spoil(&ev)
		e.is(e.tryPublish(b, ev), messaging.ErrInvalid, "Publish of an event with %s", c.what)
	}
	e.accept(src, events...)
	e.fence(b, src, "evt.after")
}

// padAttributes makes all attributes take size bytes in encoded form.
func padAttributes(ev *event.Event, size int) {
	ev.SetExtension("padding", "x")
	ev.SetExtension("padding", strings.Repeat("x", 1+size-(event.Size(*ev)-len(ev.Data()))))
}

func evt2Size(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	sized := func(size int) event.Event {
		ev := e.event("evt.size")
		withData("application/octet-stream", "x")(&ev)
		ev.DataEncoded = bytes.Repeat([]byte{0xA7}, 1+size-event.Size(ev))
		return ev
	}
	largest := sized(messaging.MaxEventSize - messaging.ReservedSize)
	e.publish(b, largest)
	for _, size := range []int{messaging.MaxEventSize - messaging.ReservedSize + 1, messaging.MaxEventSize, 3 * messaging.MaxEventSize} {
		e.is(e.tryPublish(b, sized(size)), messaging.ErrTooLarge, "Publish of an event of %d bytes", size)
	}
	d := e.expect(src, largest, 1)
	e.retry(d, 0)
	e.ack(e.expect(src, largest, 2))
	e.fence(b, src, "evt.after")
}
