package event_test

import (
	"errors"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
)

func TestEncode(t *testing.T) {
	e := full()
	e.SetExtension("vector", "Euro € 😀") // the example of the HTTP and NATS bindings
	e.SetExtension("empty", "")
	header := map[string][]string{"Other": {"kept"}}
	body, err := event.NATS.Encode(e, header)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"Other":              {"kept"},
		"ce-specversion":     {"1.0"},
		"ce-id":              {"1"},
		"ce-source":          {"/orders"},
		"ce-type":            {"order.created"},
		"ce-datacontenttype": {"application/json"},
		"ce-dataschema":      {"https://example.com/schema.json?v=1"},
		"ce-subject":         {"order%201/%C3%A9"},
		"ce-time":            {"2026-01-02T02:04:05.123456789Z"},
		"ce-exbool":          {"true"},
		"ce-exint":           {"42"},
		"ce-exstring":        {"50%25%20%22off%22,%20%E2%82%AC%20%F0%9F%98%80"},
		"ce-exbinary":        {"AAEC/w=="},
		"ce-exurl":           {"https://example.com/a%2520b"},
		"ce-exref":           {"a/b"},
		"ce-extime":          {"2020-02-29T01:02:03.000000004Z"},
		"ce-vector":          {"Euro%20%E2%82%AC%20%F0%9F%98%80"},
		"ce-empty":           {""},
	}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if &body[0] != &e.Data()[0] {
		t.Error("the body is a copy")
	}
	header["ce-id"] = append(header["ce-id"], "x")
	want["ce-id"] = header["ce-id"]
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("appending to one header changed another (-want +got):\n%s", diff)
	}
}

func TestEncodeContentType(t *testing.T) {
	binding := event.Binding{Prefix: "ce_", ContentType: "content-type"}
	header := make(map[string][]string)
	if _, err := binding.Encode(with(setData(`text/plain; charset="utf 8"`, "é")), header); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"ce_specversion": {"1.0"}, "ce_id": {"1"}, "ce_source": {"/orders"}, "ce_type": {"order.created"},
		"content-type": {`text/plain; charset="utf 8"`},
	}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}

	// An event within an event.
	e := with(setData("Application/CloudEvents+json", "{}"))
	if _, err := binding.Encode(e, header); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error is %v", err)
	}
	roundTripNATS(t, e)
}

func roundTripNATS(t *testing.T, e event.Event) {
	t.Helper()
	header := make(map[string][]string)
	body, err := event.NATS.Encode(e, header)
	if err != nil {
		t.Fatal(err)
	}
	got, err := event.NATS.Decode(header, body)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "binary mode", e, got)
	agree(t, e)
}

// TestEncodeUnchecked gives Encode what Check refuses: whatever comes of it, nothing
// may break a header out of its line, and an error leaves the headers alone.
func TestEncodeUnchecked(t *testing.T) {
	events := map[string]event.Event{
		"line breaks": with(func(_ *event.Event, c *sdk.EventContextV1) {
			const s = "a\r\nb\x00: c"
			c.ID, c.Type, c.Subject, c.DataContentType = s, s, pointer(s), pointer(s)
			c.Source.URL = url.URL{Scheme: "x", Opaque: s}
			c.Extensions = map[string]any{"a": s}
		}),
		"line break in a name":        with(setExtension("a\r\nb", "x")),
		"line break in a scheme":      with(func(_ *event.Event, c *sdk.EventContextV1) { c.Source.URL = url.URL{Scheme: "x\n", Host: "h"} }),
		"line break in a plain path":  with(func(_ *event.Event, c *sdk.EventContextV1) { c.Source.URL = url.URL{Path: "/\n"} }),
		"line break in content type":  with(setData("a/b\r\nx: y", "")),
		"not UTF-8 in content type":   with(setData("a/\xff", "")),
		"line break in an extension":  with(setExtension("a", "\n")),
		"line break in an opaque URL": with(setExtension("a", url.URL{Scheme: "x", Opaque: "\r\n"})),
	}
	for _, test := range invalid {
		events[test.name] = with(test.change)
	}
	for name, e := range events {
		for _, binding := range []event.Binding{event.NATS, {Prefix: "ce_", ContentType: "content-type"}} {
			header := map[string][]string{"a": {"b"}}
			before := maps.Clone(header)
			_, err := binding.Encode(e, header)
			for name, values := range header {
				if strings.ContainsAny(name+values[0], "\r\n\x00") {
					t.Errorf("%s: header %q: %q", name, name, values)
				}
			}
			if diff := cmp.Diff(before, header); err != nil && diff != "" {
				t.Errorf("%s: headers changed by an error (-want +got):\n%s", name, diff)
			}
		}
	}
	for _, name := range []string{"no context", "version 0.3", "extension data", "extension nil", "extension float", "year 10000"} {
		for _, test := range invalid {
			if test.name != name {
				continue
			}
			if _, err := event.NATS.Encode(with(test.change), map[string][]string{}); err == nil {
				t.Errorf("%s: encoded", name)
			}
		}
	}
}

// required returns the headers of a minimal event, with more of them or others.
func required(more ...string) map[string][]string {
	header := map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/orders"}, "ce-type": {"order.created"},
	}
	for i := 0; i < len(more); i += 2 {
		header[more[i]] = append(header[more[i]], more[i+1])
	}
	return header
}

func TestDecode(t *testing.T) {
	for _, test := range []struct {
		name   string
		header map[string][]string
		body   string
		want   change
	}{
		{"minimal", required(), "", valid["minimal"]},
		{"foreign headers", required("Nats-Msg-Id", "x", "Nats-Msg-Id", "y", "ce", "x", "c\u212A-id", "x", "xce-id", "x"), "", valid["minimal"]},
		{"any case", map[string][]string{"CE-SpecVersion": {"1.0"}, "Ce-Id": {"1"}, "cE-sOuRcE": {"/orders"}, "ce-TYPE": {"order.created"}, "Ce-Abc": {"x"}}, "", setExtension("abc", "x")},
		{"empty extension", required("ce-a", ""), "", setExtension("a", "")},
		{"extension without a value", func() map[string][]string { h := required(); h["ce-a"] = nil; return h }(), "", valid["minimal"]},
		{"content type", required("content-TYPE", "a/b"), "x", setData("a/b", "x")},
		{"content type as attribute", required("ce-datacontenttype", "a/b;%20c=d"), "x", setData("a/b; c=d", "x")},
		{"both", required("ce-datacontenttype", "a/b", "Content-Type", "c/d"), "x", setData("a/b", "x")},
		{"content type is not decoded", required("Content-Type", `a/b; c="%20"`), "x", setData(`a/b; c="%20"`, "x")},

		{"escapes", required("ce-a", "Euro%20%E2%82%AC%20%F0%9F%98%80"), "", setExtension("a", "Euro € 😀")},
		{"lower-case escapes", required("ce-a", "%e2%82%ac"), "", setExtension("a", "€")},
		{"needless escapes", required("ce-a", "%41b%2D"), "", setExtension("a", "Ab-")},
		{"decoded once", required("ce-a", "%2541"), "", setExtension("a", "%41")},
		{"raw UTF-8", required("ce-a", "a €"), "", setExtension("a", "a €")},
		{"quoted", required("ce-a", `"a \"b\" \\ %20c"`), "", setExtension("a", `a "b" \  c`)},
		{"quoted escape", required("ce-a", `"\%41"`), "", setExtension("a", "A")},
		{"empty quoted", required("ce-a", `""`), "", setExtension("a", "")},
		{"quote alone", required("ce-a", `"`), "", setExtension("a", `"`)},
		{"quote unfinished", required("ce-a", `"a`), "", setExtension("a", `"a`)},
		{"closing quote escaped", required("ce-a", `"a\"`), "", setExtension("a", `"a\"`)},
		{"quote inside", required("ce-a", `"a"b"`), "", setExtension("a", `"a"b"`)},
		{"encoded quotes are content", required("ce-a", `%22a%22`), "", setExtension("a", `"a"`)},
		{"percent sign alone", required("ce-a", "100%"), "", setExtension("a", "100%")},
		{"percent sign, digits missing", required("ce-a", "%4 %zz %"), "", setExtension("a", "%4 %zz %")},
		{"encoded NUL", required("ce-a", "%00"), "", setExtension("a", "\x00")}, // for Check to refuse

		{"breaks EVT-1", required("ce-datacontenttype", "application/json", "ce-subject", "%0A", "ce-dataschema", "x"), "{", func(e *event.Event, c *sdk.EventContextV1) {
			setData("application/json", "{")(e, c)
			c.Subject = pointer("\n")
			e.SetDataSchema("x")
		}},
		{"time", required("ce-time", "2026-01-02T03:04:05.123456789%2B01:00"), "", func(e *event.Event, _ *sdk.EventContextV1) {
			e.SetTime(time.Date(2026, 1, 2, 2, 4, 5, 123456789, time.UTC))
		}},
		{"JSON object in binary mode", required(), `{"specversion":"1.0"}`, setData("", `{"specversion":"1.0"}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := with(test.want)
			got, err := event.NATS.Decode(test.header, []byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if !event.Equal(want, got) {
				t.Errorf("got\n%v\nwant\n%v", got, want)
			}
		})
	}
}

func TestDecodeStructured(t *testing.T) {
	const text = `{"specversion":"1.0","id":"1","source":"/orders","type":"order.created","a":7,"b":true,"datacontenttype":"a/json","data":{"x":1}}`
	want := with(func(e *event.Event, c *sdk.EventContextV1) {
		setData("a/json", `{"x":1}`)(e, c)
		c.Extensions = map[string]any{"a": "7", "b": "true"}
	})
	for name, header := range map[string]map[string][]string{
		"Content-Type":               {"Content-Type": {"application/cloudevents+json"}},
		"any case, with parameters":  {"CONTENT-type": {"Application/CloudEvents+JSON ; charset=utf-8"}},
		"Content-Type goes first":    {"content-type": {"application/cloudevents+json"}, "ce-specversion": {"9"}, "ce-x-y": {"z"}},
		"no headers":                 nil,
		"no Content-Type, no ce-":    {"Nats-Msg-Id": {"x"}},
		"no Content-Type, some ce-s": {"ce-id": {"other"}},
	} {
		got, err := event.NATS.Decode(header, []byte(" "+text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !event.Equal(want, got) {
			t.Errorf("%s: got\n%v\nwant\n%v", name, got, want)
		}
		if diff := cmp.Diff(want.Extensions(), got.Extensions()); diff != "" {
			t.Errorf("%s: extensions (-want +got):\n%s", name, diff)
		}
	}

	// What Unmarshal refuses because Check does, Decode delivers.
	broken := strings.Replace(text, `"data"`, `"subject":"","data"`, 1)
	if _, err := event.Unmarshal([]byte(broken)); err == nil {
		t.Error("Unmarshal accepts an empty subject")
	}
	if _, err := event.NATS.Decode(nil, []byte(broken)); err != nil {
		t.Error(err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	without := func(name string) map[string][]string {
		header := required()
		delete(header, name)
		return header
	}
	set := func(name string, values ...string) map[string][]string {
		header := required()
		header[name] = values
		return header
	}
	for _, test := range []struct {
		name   string
		header map[string][]string
		body   string
		want   string
	}{
		{"nothing", nil, "", `"specversion"`},
		{"text", nil, "hello", `"specversion"`},
		{"array", nil, "[]", `"specversion"`},
		{"object that is no event", nil, "{}", `"specversion"`},
		{"object with another Content-Type", map[string][]string{"Content-Type": {"application/json"}}, "{}", `"specversion"`},
		{"batch", map[string][]string{"Content-Type": {"application/cloudevents-batch+json"}}, "[]", "application/cloudevents-batch+json"},
		{"protobuf", map[string][]string{"Content-Type": {"Application/CloudEvents+protobuf"}}, "", "+protobuf"},
		{"two Content-Types", required("Content-Type", "a/b", "content-type", "a/b"), "", "ontent-"},
		{"two values of Content-Type", required("Content-Type", "a/b", "Content-Type", "a/b"), "", "Content-Type"},
		{"no specversion", without("ce-specversion"), "", `"specversion"`},
		{"no id", without("ce-id"), "", `"id"`},
		{"no source", without("ce-source"), "", `"source"`},
		{"no type", without("ce-type"), "", `"type"`},
		{"empty id", set("ce-id", ""), "", `"id"`},
		{"empty source", set("ce-source", ""), "", `"source"`},
		{"no values", set("ce-id"), "", `"id"`},
		{"two values", set("ce-id", "1", "1"), "", `"id"`},
		{"two cases", required("Ce-Id", "1"), "", `"id"`},
		{"two values of an extension", required("ce-a", "1", "ce-a", "1"), "", `"a"`},
		{"two cases of an extension", required("ce-a", "1", "ce-A", "1"), "", `"a"`},
		{"specversion 0.3", set("ce-specversion", "0.3"), "", `"specversion"`},
		{"source", set("ce-source", "http://u:secret@h:x"), "", `"source"`},
		{"schema", required("ce-dataschema", "%25"), "", `"dataschema"`},
		{"time", required("ce-time", "now"), "", `"time"`},
		{"empty time", required("ce-time", ""), "", `"time"`},
		{"extension data", required("ce-data", "x"), "", `"data"`},
		{"extension name", required("ce-a_b", "x"), "", `"a_b"`},
		{"extension name not ASCII", required("ce-\u212A", "x"), "", `\u212a`},
		{"extension without a name", required("ce-", "x"), "", `""`},
		{"not UTF-8", required("ce-a", "\xff"), "", `"a"`},
		{"escapes that are not UTF-8", required("ce-a", "%C0%A0"), "", `"a"`},
		{"escaped surrogate", required("ce-a", "%ED%A0%80"), "", `"a"`},
		{"half a character", required("ce-a", "%E2%82"), "", `"a"`},
		{"Content-Type not UTF-8", required("Content-Type", "a/\xff"), "", `"datacontenttype"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, err := event.NATS.Decode(test.header, []byte(test.body))
			if err == nil {
				t.Fatalf("accepted as\n%v", e)
			}
			if !strings.HasPrefix(err.Error(), "event: ") || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error is %q, want it to say %s", err, test.want)
			}
			if e.Context != nil {
				t.Error("an event came with the error")
			}
		})
	}
}

func TestDecodeWithoutPercent(t *testing.T) {
	binding := event.Binding{Prefix: "ce_", ContentType: "content-type"}
	header := map[string][]string{
		"ce_specversion": {"1.0"}, "ce_id": {"%41"}, "ce_source": {"/a"}, "ce_type": {`"t"`},
		"ce_datacontenttype": {"c/d"}, "Content-Type": {"a/b"},
	}
	e, err := binding.Decode(header, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e.ID() != "%41" || e.Type() != `"t"` || e.DataContentType() != "a/b" {
		t.Errorf("got %v", e)
	}
	delete(header, "Content-Type")
	if e, err = binding.Decode(header, nil); err != nil || e.DataContentType() != "c/d" {
		t.Errorf("got %v, %v", e, err)
	}
	header["ce_id"] = []string{"\xff"}
	if _, err := binding.Decode(header, nil); err == nil {
		t.Error("invalid UTF-8 is accepted")
	}
}

func TestDecodeSharesBody(t *testing.T) {
	body := []byte("\xff")
	e, err := event.NATS.Decode(required(), body)
	if err != nil {
		t.Fatal(err)
	}
	if &e.Data()[0] != &body[0] {
		t.Error("the data is a copy")
	}
	if !e.DataBase64 {
		t.Error("DataBase64 is not set: the SDK would write the data into a JSON string")
	}
}

// TestSourceParsesAsURL holds the package's own URL parser to net/url's.
func TestSourceParsesAsURL(t *testing.T) {
	for _, source := range []string{
		"a", "/", "//", "///", "///a", "//h", "//h/", "//h//a", "//h:1", "//h:", "//:1", "//h:1:2/", "a:", "a:b", "a:/b", "a://", "a://b", "a:///b",
		"a://b:8/c", "A:b", "1:b", ":b", "a.b:c", "a/b:c", "/b:c", "./b:c", "a//b", "*", ".", "..", "-:a", "a-1+b.c:d", "a:b:c", "a:b/c", "a://b_c/d",
		"a://~/x", "a://b/c/../d", "localhost:8080/x", "a:.", "a:~b",
	} {
		want, err := url.Parse(source)
		e, decodeErr := event.NATS.Decode(map[string][]string{
			"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-type": {"t"}, "ce-source": {source},
		}, nil)
		if err != nil || *want == (url.URL{}) {
			if decodeErr == nil {
				t.Errorf("%q: parsed as %+v", source, context(t, e).Source.URL)
			}
			continue
		}
		if decodeErr != nil {
			t.Errorf("%q: %v", source, decodeErr)
			continue
		}
		if diff := cmp.Diff(*want, context(t, e).Source.URL); diff != "" {
			t.Errorf("%q (-want +got):\n%s", source, diff)
		}
		header := make(map[string][]string)
		if _, err := event.NATS.Encode(e, header); err != nil {
			t.Error(err)
		}
		if got := header["ce-source"][0]; got != want.String() {
			t.Errorf("%q: written as %q, want %q", source, got, want.String())
		}
	}
}

func TestAllocations(t *testing.T) {
	e := typical(256)
	header := make(map[string][]string)
	body, err := event.NATS.Encode(e, header)
	if err != nil {
		t.Fatal(err)
	}
	text, err := event.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	buffer, err := event.AppendAttributes(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	attributes := string(buffer)
	for _, test := range []struct {
		name string
		max  float64
		f    func()
	}{
		{"Check", 0, func() { _ = event.Check(e) }},
		{"Size", 0, func() { event.Size(e) }},
		{"Equal", 0, func() { event.Equal(e, e) }},
		{"Clone", 6, func() { event.Clone(e) }},
		{"AppendAttributes", 0, func() { _, _ = event.AppendAttributes(buffer[:0], e) }},
		{"AppendIdentity", 0, func() { event.AppendIdentity(buffer[:0], e) }},
		{"ParseAttributes", 6, func() { _, _ = event.ParseAttributes(attributes, body) }},
		{"Encode", 5, func() { _, _ = event.NATS.Encode(e, make(map[string][]string, 16)) }},
		{"Decode", 6, func() { _, _ = event.NATS.Decode(header, body) }},
		{"Marshal", 4, func() { _, _ = event.Marshal(e) }},
		{"Unmarshal", 20, func() { _, _ = event.Unmarshal(text) }},
	} {
		n := testing.AllocsPerRun(100, test.f)
		t.Logf("%s: %v", test.name, n)
		if n > test.max {
			t.Errorf("%s allocates %v times, want at most %v", test.name, n, test.max)
		}
	}
}
