package event_test

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
)

type change = func(e *event.Event, c *sdk.EventContextV1)

func setExtension(name string, value any) change {
	return func(_ *event.Event, c *sdk.EventContextV1) { c.Extensions = map[string]any{name: value} }
}

func setData(contentType, data string) change {
	return func(e *event.Event, c *sdk.EventContextV1) {
		if contentType != "" {
			c.DataContentType = &contentType
		}
		e.DataEncoded = []byte(data)
	}
}

func setSource(s string) change {
	return func(e *event.Event, _ *sdk.EventContextV1) { e.SetSource(s) }
}

func extensions(n, size int) change {
	return func(_ *event.Event, c *sdk.EventContextV1) {
		c.Extensions = make(map[string]any)
		for i := range n {
			c.Extensions[fmt.Sprintf("x%03d", i)] = strings.Repeat("v", size)
		}
	}
}

// valid are events that Check accepts. They arrive Equal in every form.
var valid = map[string]change{
	"minimal":               func(*event.Event, *sdk.EventContextV1) {},
	"spaces around id":      func(_ *event.Event, c *sdk.EventContextV1) { c.ID = "  1 " },
	"spaces around type":    func(_ *event.Event, c *sdk.EventContextV1) { c.Type = " t  " },
	"spaces around subject": func(_ *event.Event, c *sdk.EventContextV1) { c.Subject = pointer("\u00a0 s\u3000 ") },
	"escapes in id":         func(_ *event.Event, c *sdk.EventContextV1) { c.ID = `%41 "q\" 100%` },
	"quoted id":             func(_ *event.Event, c *sdk.EventContextV1) { c.ID = `"1"` },
	"replacement character": func(_ *event.Event, c *sdk.EventContextV1) { c.ID = "\ufffd" },
	"longest type":          func(_ *event.Event, c *sdk.EventContextV1) { c.Type = strings.Repeat("t", 255) },
	"type with tokens":      func(_ *event.Event, c *sdk.EventContextV1) { c.Type = "..*.>.$ é" },
	"time with zone":        func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(time.Unix(1, 1).In(time.FixedZone("", -3600))) },
	"first year":            func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)) },
	"last instant": func(e *event.Event, _ *sdk.EventContextV1) {
		e.SetTime(time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC))
	},
	"zero time":                     func(_ *event.Event, c *sdk.EventContextV1) { c.Time = &types.Timestamp{} },
	"schema":                        func(e *event.Event, _ *sdk.EventContextV1) { e.SetDataSchema("https://h/p?q=1#f") },
	"schema urn":                    func(e *event.Event, _ *sdk.EventContextV1) { e.SetDataSchema("urn:x:y") },
	"64 extensions":                 extensions(64, 1),
	"largest attributes":            extensions(8, 4079), // see TestSizeBound
	"content type with parameters":  setData(`application/json; charset="utf-8"`, "1"),
	"no data under JSON":            setData("application/json", ""),
	"text":                          setData("text/plain", "a\r\n\x00\t\"\\é\u2028"),
	"text that looks like JSON":     setData("text/plain", `{"a":1}`),
	"binary":                        setData("application/octet-stream", "\x00\xff\xfe"),
	"binary under text":             setData("text/plain", "\xff"),
	"64 KiB and more":               setData("application/octet-stream", strings.Repeat("\x00\xff %\"", 20000)),
	"spaces around data":            setData("text/plain", "  a  "),
	"binary under none":             setData("", "\xff"),
	"text under none":               setData("", "a"),
	"JSON under none":               setData("", `{"a":1}`),
	"null under none":               setData("", "null"),
	"null":                          setData("application/json", "null"),
	"JSON with space around":        setData("application/json", " \r\n{\"a\" :\t1}\n"),
	"JSON under none, space around": setData("", " 1 "),
	"JSON with line breaks inside":  setData("application/json", "{\r\n\"a\":\r\n1}"),
	"JSON with large number":        setData("application/json", `[12345678901234567890,1.0,1e400,-0]`),
	"JSON with half a surrogate":    setData("application/json", `"\ud800"`),
	"JSON with duplicate members":   setData("application/json", `{"a":1,"a":2}`),
	"text/json":                     setData("text/json", `[]`),
	"+json":                         setData("Application/Vnd.X+JSON; v=1", `{}`),
	"DataBase64 under text": func(e *event.Event, c *sdk.EventContextV1) {
		setData("text/plain", "abc")(e, c)
		e.DataBase64 = true
	},
	"DataBase64 under none": func(e *event.Event, c *sdk.EventContextV1) {
		setData("", "1")(e, c)
		e.DataBase64 = true
	},
	"extension string":     setExtension("a", " %20 \"é\" "),
	"extension empty":      setExtension("a", ""),
	"extension digits":     setExtension("007", "x"),
	"extension true":       setExtension("a", true),
	"extension false":      setExtension("a", false),
	"extension int":        setExtension("a", math.MinInt32),
	"extension zero":       setExtension("a", int32(0)),
	"extension uint64":     setExtension("a", uint64(math.MaxInt32)),
	"extension float":      setExtension("a", 3.0),
	"extension bytes":      setExtension("a", []byte{1, 255}),
	"extension no bytes":   setExtension("a", []byte(nil)),
	"extension time":       setExtension("a", pointer(time.Unix(0, 1))),
	"extension zero time":  setExtension("a", time.Time{}),
	"extension timestamp":  setExtension("a", &types.Timestamp{Time: time.Unix(0, 1)}),
	"extension URL":        setExtension("a", &url.URL{Path: "a b"}),
	"extension URI":        setExtension("a", types.URI{URL: url.URL{Scheme: "x", Opaque: "y"}}),
	"extension URIRef":     setExtension("a", &types.URIRef{}),
	"extension long name":  setExtension(strings.Repeat("a", 100), "x"),
	"extension like data":  setExtension("data1", "x"),
	"source with space":    setSource("a b"),
	"source non-ASCII":     setSource("é"),
	"source without host":  setSource("//h/p"),
	"source query":         setSource("?q"),
	"source urn":           setSource("urn:x:y"),
	"source mailto":        setSource("mailto:a@b.example"),
	"source fragment":      setSource("#f"),
	"source escaped":       setSource("/a%2Fb%20c?x=%22#%20"),
	"source with user":     setSource("amqp://user:pass@host:5672/v"),
	"source file":          setSource("file:///a"),
	"source scheme + path": setSource("x:/a"),
	"source upper scheme":  setSource("HTTP://Host/Path"),
	"source IPv6":          setSource("http://[::1]:80/"),
	"source force query":   setSource("/a?"),
	"source dots":          setSource("./a:b/../c"),
	"source relative":      setSource("orders"),
	"source star":          setSource("*"),
	"source slashes":       setSource("///x"),
	"source colon":         setSource("/a:b"),
}

func TestCheckAccepts(t *testing.T) {
	for name, change := range valid {
		t.Run(name, func(t *testing.T) {
			e := with(change)
			if err := event.Check(e); err != nil {
				t.Fatal(err)
			}
			if err := e.Validate(); err != nil {
				t.Errorf("the SDK refuses the event: %v", err)
			}
		})
	}
	if err := event.Check(full()); err != nil {
		t.Error(err)
	}
}

// invalid are events that Check refuses, and the attribute that it names.
var invalid = []struct {
	name, attribute string
	change          change
}{
	{"no context", `"specversion"`, func(e *event.Event, _ *sdk.EventContextV1) { e.Context = nil }},
	{"nil context", `"specversion"`, func(e *event.Event, _ *sdk.EventContextV1) { e.Context = (*sdk.EventContextV1)(nil) }},
	{"nil 0.3", `"specversion"`, func(e *event.Event, _ *sdk.EventContextV1) { e.Context = (*sdk.EventContextV03)(nil) }},
	{"version 0.3", `"specversion"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetSpecVersion("0.3") }},
	{"zero context", `"id"`, func(e *event.Event, _ *sdk.EventContextV1) { e.Context = &sdk.EventContextV1{} }},
	{"FieldErrors", `"time"`, func(e *event.Event, _ *sdk.EventContextV1) {
		e.FieldErrors = map[string]error{"time": errors.New("x"), "zzz": errors.New("y")}
	}},
	{"FieldErrors without error", `"id"`, func(e *event.Event, _ *sdk.EventContextV1) { e.FieldErrors = map[string]error{"id": nil} }},
	{"setter refused", `"source"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetSource("http://u:secret@h:p/") }},
	{"extension setter refused", `"big"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetExtension("big", int64(1)<<40) }},
	{"no id", `"id"`, func(_ *event.Event, c *sdk.EventContextV1) { c.ID = "" }},
	{"blank id", `"id"`, func(_ *event.Event, c *sdk.EventContextV1) { c.ID = " " }},
	{"no source", `"source"`, setSource("")},
	{"empty fragment", `"source"`, setSource("#")},
	{"no type", `"type"`, func(_ *event.Event, c *sdk.EventContextV1) { c.Type = "" }},
	{"long type", `"type"`, func(_ *event.Event, c *sdk.EventContextV1) { c.Type = strings.Repeat("t", 256) }},
	{"empty subject", `"subject"`, func(_ *event.Event, c *sdk.EventContextV1) { c.Subject = pointer("") }},
	{"empty content type", `"datacontenttype"`, func(_ *event.Event, c *sdk.EventContextV1) { c.DataContentType = pointer("") }},
	{"content type without slash", `"datacontenttype"`, func(_ *event.Event, c *sdk.EventContextV1) { c.DataContentType = pointer("xyz") }},
	{"content type without subtype", `"datacontenttype"`, func(_ *event.Event, c *sdk.EventContextV1) { c.DataContentType = pointer("text/") }},
	{"content type with space", `"datacontenttype"`, func(_ *event.Event, c *sdk.EventContextV1) { c.DataContentType = pointer(" text/plain") }},
	{"content type with bad parameter", `"datacontenttype"`, func(_ *event.Event, c *sdk.EventContextV1) { c.DataContentType = pointer("text/plain; =") }},
	{"relative schema", `"dataschema"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetDataSchema("/schema") }},
	{"empty schema", `"dataschema"`, func(_ *event.Event, c *sdk.EventContextV1) { c.DataSchema = &types.URI{} }},
	{"year 10000", `"time"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)) }},
	{"year -1", `"time"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)) }},
	{"year 10000 in UTC", `"time"`, func(e *event.Event, _ *sdk.EventContextV1) {
		e.SetTime(time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)))
	}},

	{"65 extensions", "65 extensions", extensions(65, 1)},
	{"large attributes", "the attributes", extensions(64, 600)},
	{"large in encoded form", "the attributes", extensionsOf(64, strings.Repeat(" ", 200))},
	{"extension data", `"data"`, setExtension("data", "x")},
	{"extension data_base64", `"data_base64"`, setExtension("data_base64", "x")},
	{"extension id", `"id"`, setExtension("id", "x")},
	{"extension specversion", `"specversion"`, setExtension("specversion", "x")},
	{"extension upper case", `"Abc"`, setExtension("Abc", "x")},
	{"extension non-ASCII", `"\u00e9"`, setExtension("é", "x")},
	{"extension without name", `""`, setExtension("", "x")},
	{"extension nil", `"a"`, setExtension("a", nil)},
	{"extension nil URL", `"a"`, setExtension("a", (*url.URL)(nil))},
	{"extension nil URI", `"a"`, setExtension("a", (*types.URI)(nil))},
	{"extension nil URIRef", `"a"`, setExtension("a", (*types.URIRef)(nil))},
	{"extension nil time", `"a"`, setExtension("a", (*time.Time)(nil))},
	{"extension nil timestamp", `"a"`, setExtension("a", (*types.Timestamp)(nil))},
	{"extension nil string", `"a"`, setExtension("a", (*string)(nil))},
	{"extension float", `"a"`, setExtension("a", 1.5)},
	{"extension NaN", `"a"`, setExtension("a", math.NaN())},
	{"extension Inf", `"a"`, setExtension("a", float32(math.Inf(1)))},
	{"extension int64", `"a"`, setExtension("a", int64(math.MaxInt32)+1)},
	{"extension uint64", `"a"`, setExtension("a", uint64(math.MaxUint64))},
	{"extension map", `"a"`, setExtension("a", map[string]any{})},
	{"extension struct", `"a"`, setExtension("a", struct{}{})},
	{"extension year", `"a"`, setExtension("a", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
	{"extension URL with control character", `"a"`, setExtension("a", url.URL{Scheme: "x", Opaque: "\n"})},
	{"extension pointer to itself", `"a"`, setExtension("a", selfPointer())},

	{"data not JSON", `data`, setData("application/json", "{")},
	{"data with garbage", `data`, setData("application/json", "1 2")},
	{"data not JSON, +json", `data`, setData("application/vnd.x+json; charset=utf-8", "x")},
	{"data not JSON, upper case", `data`, setData("TEXT/JSON", "x")},
	{"data not UTF-8", `data`, setData("application/json", "\"\xff\"")},
	{"data with BOM", `data`, setData("application/json", "\ufeff1")},

	{"source with parts that do not parse back", `"source"`, func(_ *event.Event, c *sdk.EventContextV1) { c.Source.URL = url.URL{Host: "a/b"} }},
	{"source with control character", `"source"`, func(_ *event.Event, c *sdk.EventContextV1) {
		c.Source.URL = url.URL{Scheme: "x", Opaque: "a\r\nb"}
	}},
	{"source with space in opaque", `"source"`, setSource("x:a b")},
	{"source non-ASCII query", `"source"`, setSource("?é")},
}

func selfPointer() any {
	type loop *loop
	var p loop
	p = loop(&p)
	return p
}

func extensionsOf(n int, value string) change {
	return func(_ *event.Event, c *sdk.EventContextV1) {
		c.Extensions = make(map[string]any)
		for i := range n {
			c.Extensions[fmt.Sprintf("x%03d", i)] = value
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, test := range invalid {
		t.Run(test.name, func(t *testing.T) {
			err := event.Check(with(test.change))
			if err == nil {
				t.Fatal("accepted")
			}
			if got := err.Error(); !strings.HasPrefix(got, "event: ") || !strings.Contains(got, test.attribute) {
				t.Errorf("error %q does not name %s", got, test.attribute)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error %q tells a password", err)
			}
		})
	}
	if event.Check(event.Event{}) == nil {
		t.Error("the zero Event is accepted")
	}
}

func TestCheckRefusesCharacters(t *testing.T) {
	set := map[string]func(c *sdk.EventContextV1, s string){
		"id":              func(c *sdk.EventContextV1, s string) { c.ID = s },
		"type":            func(c *sdk.EventContextV1, s string) { c.Type = s },
		"subject":         func(c *sdk.EventContextV1, s string) { c.Subject = &s },
		"datacontenttype": func(c *sdk.EventContextV1, s string) { c.DataContentType = pointer("text/" + s) },
		"ext":             func(c *sdk.EventContextV1, s string) { c.Extensions = map[string]any{"ext": s} },
	}
	for attribute, set := range set {
		for _, bad := range []string{
			"\x00", "\n", "\r", "\x1f", "\x7f", "\u0080", "\u009f", "\ufdd0", "\ufdef", "\ufffe", "\uffff",
			"\U0001fffe", "\U0010ffff", "\xff", "\xc0\xa0", "\xed\xa0\x80", "\xe2\x82",
		} {
			e := minimal()
			set(context(t, e), "a"+bad+"z")
			if err := event.Check(e); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", attribute)) {
				t.Errorf("%s with %+q: error is %v", attribute, bad, err)
			}
		}
	}
}

// TestSizeBound holds the bound on attributes to the byte, and Size to what is
// really written.
func TestSizeBound(t *testing.T) {
	e := full()
	c := context(t, e)
	c.Extensions["fill"] = strings.Repeat("v", event.MaxAttributeBytes-(event.Size(e)-len(e.Data()))-len("ce-fill"))
	if err := event.Check(e); err != nil {
		t.Error(err)
	}
	header := make(map[string][]string)
	body, err := event.NATS.Encode(e, header)
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	for name, values := range header {
		written += len(name) + len(values[0])
	}
	if written != event.MaxAttributeBytes || written+len(body) != event.Size(e) {
		t.Errorf("%d bytes of headers and %d of body are written, Size is %d", written, len(body), event.Size(e))
	}
	c.Extensions["fill"] = c.Extensions["fill"].(string) + "v"
	if event.Check(e) == nil {
		t.Error("one byte more is accepted")
	}
}

func TestSizeOfInvalid(t *testing.T) {
	for _, test := range invalid {
		event.Size(with(test.change)) // does not panic
	}
	if n := event.Size(event.Event{DataEncoded: make([]byte, 7)}); n != 7 {
		t.Errorf("size of an event without attributes is %d", n)
	}
}
