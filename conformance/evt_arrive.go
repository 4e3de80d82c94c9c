package conformance

import (
	"bytes"
	"net/url"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
)

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

// Data of each length at which a buffer may end.
func evt3Sizes(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	for size := 1; size <= 128<<10; size *= 2 {
		for n := size - 1; n <= size+1; n++ {
			ev := e.event("evt.size")
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(i%255) + 1
			}
			withData("application/octet-stream", string(data))(&ev)
			e.publish(b, ev)
			e.accept(src, ev)
		}
	}
}

// One that another client published belongs to each delivery as well.
func evt5Injected(e *env) {
	b := e.open()
	one, two := e.subscribe(b, e.sub()), e.subscribe(b, e.sub())
	ev := e.event("evt.injected")
	header, body := e.encoded(ev)
	e.injected(b, header, body)
	d := e.expect(one, ev, 1)
	vandalise(&d.Value)
	e.retry(d, 0)
	d = e.expect(one, ev, 2)
	vandalise(&d.Value)
	e.accept(two, ev)
}
