package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

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
	},
	"EVT-4": {{name: "after_publish", do: evt4}},
	"EVT-5": {
		{name: "redelivery", do: evt5Redelivery},
		{name: "subscriptions", do: evt5Subscriptions},
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

// deliver publishes each event alone, and expects them to arrive equal.
func (e *env) deliver(events []event.Event) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	for _, ev := range events {
		e.publish(b, ev)
	}
	e.accept(src, events...)
	e.fence(b, src, "evt.after")
}

// text has what encodings get wrong.
const text = ` leading, "quoted" 'both', %41 100% %zz, a\b a+b a=b;c a,b ünïcödé 日本 🎉 <&>, trailing `

func evt3Attributes(e *env) {
	var events []event.Event
	add := func(change func(*event.Event)) {
		ev := e.event("evt.attributes")
		change(&ev)
		e.ok(ev.Validate(), "the suite's own event")
		events = append(events, ev)
	}
	add(func(ev *event.Event) {})
	add(func(ev *event.Event) {
		c := v1(ev) // the setters trim
		c.ID, c.Type, c.Subject = "1"+text, "type"+text, ptr(text)
		ev.SetExtension("ext", text)
	})
	for _, source := range []string{
		"/a b/ü", "https://user@example.com:8080/a%20b/%25?q=%C3%BC&r=a+b#frag", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
		"mailto:someone@example.com", "../relative", "//host/path", "?query", "#fragment", "urn:a:%25%41",
	} {
		add(func(ev *event.Event) { ev.SetSource(source) })
	}
	for _, schema := range []string{"https://example.com/a%20b?c=d#e", "urn:example:schema"} {
		add(func(ev *event.Event) { ev.SetDataSchema(schema) })
	}
	at := time.Date(2026, 2, 28, 23, 59, 59, 0, time.UTC)
	for _, t := range []time.Time{
		at, at.Add(1), at.Add(999999999), at.Add(120), at.Add(123456789),
		at.Add(123456789).In(time.FixedZone("", 5*3600+1800)), at.In(time.FixedZone("", -12*3600)),
		time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
	} {
		add(func(ev *event.Event) { ev.SetTime(t) })
	}
	add(func(ev *event.Event) { v1(ev).Time = nil })
	for _, v := range []any{
		true, false, 0, -1, int32(1<<31 - 1), int32(-1 << 31), "", " ", "%", "%20", `"`, `"quoted"`, "true", "null",
		[]byte{0, 0xFF, 'x'}, []byte{}, types.URI{URL: url.URL{Scheme: "urn", Opaque: "a:b"}},
		types.URIRef{URL: url.URL{Path: "/a b"}}, types.Timestamp{Time: at.Add(1)}, strings.Repeat("x", 10000),
	} {
		add(func(ev *event.Event) { v1(ev).Extensions = map[string]any{"ext": v, "other": "1"} })
	}
	// Names that are near to what transports and providers use themselves.
	add(func(ev *event.Event) {
		for _, name := range []string{
			"status", "description", "sequence", "subscription", "reason", "attempts", "stored", "died", "contenttype",
			"natsmsgid", "natsttl", "msgid", "header", "body", "datacontenttype1", "traceparent", "partitionkey", "x", "0",
		} {
			ev.SetExtension(name, name+" value")
		}
	})
	add(func(ev *event.Event) {
		ev.SetExtension("status", "404")
		ev.DataEncoded = nil
		v1(ev).DataContentType = nil
	})
	e.deliver(events)
}

func evt3Data(e *env) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	large := bytes.Repeat(every, 280) // 70 KiB
	var events []event.Event
	for _, data := range []string{
		"", "x", " ", "  leading and trailing  ", "\r\n", "a\r\nb: c\r\n\r\n", "\x00", "\xff", "\x00\xff\x00", "%", "%41%zz", `"`,
		`"quoted"`, "ünïcödé", "null", "{}", "+OK", "NATS/1.0\r\nStatus: 404\r\n\r\n", text, string(every),
		string(large[:64<<10-1]), string(large[:64<<10]), string(large[:64<<10+1]), string(large),
	} {
		for _, contentType := range []string{"application/octet-stream", "text/plain; charset=utf-8"} {
			ev := e.event("evt.data")
			withData(contentType, data)(&ev)
			events = append(events, ev)
		}
		if len(data) < 100 {
			ev := e.event("evt.data")
			ev.DataEncoded = []byte(data)
			v1(&ev).DataContentType = nil
			events = append(events, ev)
		}
	}
	for _, data := range []string{"{ \"b\":1,\n\t\"a\" : 1.0e2 }\n", `"\u00fc"`, "[]", strings.Repeat(" ", 100) + "0"} {
		ev := e.event("evt.data")
		withData("application/json", data)(&ev)
		events = append(events, ev)
	}
	for _, data := range [][]byte{nil, {}} {
		ev := e.event("evt.data")
		ev.DataEncoded = data
		events = append(events, ev)
	}
	e.deliver(events)
}

// strangeTypes are valid, whatever they look like to a broker.
var strangeTypes = []string{
	"*", ">", "a.*", "a.>", "*.a", ">.a", "a*", "a>b", ".", "..", "a.", ".a", "a..b", "$JS.API.STREAM.DELETE.x", "$SYS.x",
	"_INBOX.x", "%", "%2A", "100%", "a b", " a ", "ünï.cödé", "日本.語", "A.b", "a/b", `a\b`, "#", "+", "a#", `"`, "a:b", "a\u2028b",
	"{a}", "a,b", "a;b", strings.Repeat("a.", 100) + "z",
}

func evt3Types(e *env) {
	var events []event.Event
	for _, typ := range strangeTypes {
		events = append(events, e.event(typ))
	}
	e.deliver(events)
}

// A redelivery, a delivery to another member, and one to a subscription that
// came later are as faithful as the first.
func evt3Redelivered(e *env) {
	b := e.open()
	ev := e.event("evt.again")
	ev.SetExtension("ext", text)
	ev.SetSubject(text)
	ev.SetTime(time.Date(2026, 2, 28, 23, 59, 59, 123456789, time.UTC))
	withData("application/octet-stream", "\x00\xff")(&ev)
	e.publish(b, ev)
	sub := e.sub()
	src := e.subscribe(b, sub)
	e.retry(e.expect(src, ev, 1), 0)
	e.release(e.expect(src, ev, 2))
	e.closing(src)
	e.ack(e.expect(e.subscribe(b, sub), ev, 2))
	e.ack(e.expect(e.subscribe(b, e.sub()), ev, 1))
}

// vandalise changes everything in an event that its holder can change.
func vandalise(ev *event.Event) {
	for i := range ev.DataEncoded {
		ev.DataEncoded[i] ^= 0xFF
	}
	c := v1(ev)
	for name, v := range c.Extensions {
		if b, ok := v.([]byte); ok {
			for i := range b {
				b[i] ^= 0xFF
			}
			continue
		}
		c.Extensions[name] = "vandalised"
	}
	if c.Extensions != nil {
		delete(c.Extensions, "gone")
		c.Extensions["added"] = "vandalised"
	}
	for _, s := range []*string{c.Subject, c.DataContentType} {
		if s != nil {
			*s = "vandal/ised"
		}
	}
	if c.Time != nil {
		c.Time.Time = time.Unix(0, 0)
	}
	if c.DataSchema != nil {
		c.DataSchema.Path = "/vandalised"
	}
	c.Source.Path = "/vandalised"
	c.ID, c.Type = "vandalised", "vandalised"
}

// full returns an event with all that vandalise looks for.
func (e *env) full(typ string) event.Event {
	ev := e.event(typ)
	ev.SetSubject("subject")
	ev.SetDataSchema("https://example.com/schema")
	ev.SetExtension("ext", "value")
	ev.SetExtension("gone", "value")
	ev.SetExtension("bytes", []byte("value"))
	return ev
}

func evt4(e *env) {
	b := e.open()
	sub := e.sub()
	before := e.subscribe(b, sub)
	var events, originals []event.Event
	for range 3 {
		ev := e.full("evt.mine")
		events = append(events, ev)
		originals = append(originals, event.Clone(ev))
	}
	e.publish(b, events[0])
	e.publish(b, events[1:]...)
	for i := range events {
		vandalise(&events[i])
	}
	e.given("when the publisher had changed its events after Publish")
	for _, ev := range originals {
		e.expect(before, ev, 1)
	}
	after := e.subscribe(b, e.sub())
	e.accept(after, originals...)

	// While a member holds a delivery, too.
	last := e.full("evt.mine")
	original := event.Clone(last)
	e.publish(b, last)
	d := e.expect(after, original, 1)
	vandalise(&last)
	e.same(d, original)
	e.retry(d, 0)
	e.ack(e.expect(after, original, 2))
}

func evt5Redelivery(e *env) {
	b := e.open()
	ev := e.full("evt.yours")
	e.publish(b, event.Clone(ev))
	sub := e.sub()
	src := e.subscribe(b, sub)
	d := e.expect(src, ev, 1)
	vandalise(&d.Value)
	e.retry(d, 0)
	e.given("when the receiver had changed the event and retried it")
	d = e.expect(src, ev, 2)
	vandalise(&d.Value)
	e.release(d)
	e.given("when the receiver had changed the event and released it")
	d = e.expect(src, ev, 2)
	vandalise(&d.Value)
	e.closing(src) // gives it back
	e.given("when the receiver had changed the event and closed its source")
	e.ack(e.expect(e.subscribe(b, sub), ev, 2))
}

func evt5Subscriptions(e *env) {
	b := e.open()
	ev := e.full("evt.yours")
	one, two := e.subscribe(b, e.sub()), e.subscribe(b, e.sub())
	e.publish(b, event.Clone(ev))
	d := e.expect(one, ev, 1)
	held := e.expect(two, ev, 1)
	vandalise(&d.Value)
	e.same(held, ev)
	e.ack(d)
	e.retry(held, 0)
	e.ack(e.expect(two, ev, 2))
	e.ack(e.expect(e.subscribe(b, e.sub()), ev, 1))
}
