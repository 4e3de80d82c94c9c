package event_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/catchment-events/catchment/event"
)

// FuzzUnmarshal: whatever Unmarshal accepts is JSON, is valid, and survives every
// form.
func FuzzUnmarshal(f *testing.F) {
	for _, change := range valid {
		b, err := event.Marshal(with(change))
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 1000 {
			f.Add(b)
		}
	}
	b, err := event.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"data_base64":1}`))
	f.Add([]byte(`{"specversion":"1.0","id":"\ud83d\ude00","source":"a","type":"b","x":null,"data":[{"a":[]},-1.5e3,"\u0000"] } `))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := string(b)
		e, err := event.Unmarshal(b)
		if string(b) != before {
			t.Fatal("the input changed")
		}
		if _, looseErr := event.NATS.Decode(nil, b); err == nil && looseErr != nil {
			t.Errorf("Unmarshal accepts what Decode refuses: %v", looseErr)
		}
		if err != nil {
			return
		}
		if !json.Valid(b) || !utf8.Valid(b) {
			t.Error("accepted what is not JSON")
		}
		roundTrip(t, e)
	})
}

// FuzzDecode builds headers from lines. Whatever Decode accepts does not make the
// other functions panic, and what of it is valid survives every form.
func FuzzDecode(f *testing.F) {
	const required = "ce-specversion: 1.0\nce-id: 1\nce-source: /a\nce-type: b\n"
	for _, seed := range []string{
		"", required, required + "ce-a: %E2%82%AC\nce-time: 2026-01-02T03:04:05Z", required + `ce-a: "\"%41"`,
		strings.ToUpper(required), required + "ce-id: 2", required + "Ce-Id: 2", required + "ce-data: x", required + "ce-a: %C0%A0",
		"Content-Type: application/cloudevents+json", "content-type: application/cloudevents-batch+json", required + "ce-dataschema: x:y\nce-subject: %00",
		"ce_specversion: 1.0\nce_id: %\nce_source: #a\nce_type: \"b\nContent-Type: a/json",
	} {
		f.Add(seed, []byte(`{"specversion":"1.0","id":"1","source":"a","type":"b","data":1}`))
		f.Add(seed, []byte("\xff"))
	}
	f.Fuzz(func(t *testing.T, lines string, body []byte) {
		header := make(map[string][]string)
		for line := range strings.Lines(lines) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			header[name] = append(header[name], strings.TrimPrefix(value, " "))
		}
		for _, binding := range []event.Binding{event.NATS, {Prefix: "ce_", ContentType: "content-type"}, {}} {
			e, err := binding.Decode(header, body)
			if err != nil {
				if e.Context != nil || !strings.HasPrefix(err.Error(), "event: ") {
					t.Errorf("got %v, %v", e, err)
				}
				continue
			}
			if !event.Equal(e, event.Clone(e)) {
				t.Error("not equal to its clone")
			}
			if binding == event.NATS {
				survives(t, e)
			}
			if event.Check(e) == nil && !strings.HasPrefix(strings.ToLower(e.DataContentType()), "application/cloudevents") {
				roundTrip(t, e)
			}
		}
	})
}

// survives holds a delivered event, valid or not, to arriving as it left: it may go
// to the dead letters.
func survives(t *testing.T, e event.Event) {
	t.Helper()
	agree(t, e)
	header := make(map[string][]string)
	body, err := event.NATS.Encode(e, header)
	if err != nil {
		if year := e.Time().UTC().Year(); year < 0 || year > 9999 {
			return
		}
		t.Fatal(err)
	}
	got, err := event.NATS.Decode(header, body)
	if err != nil {
		t.Fatalf("%v in %q", err, header)
	}
	if !event.Equal(e, got) {
		t.Errorf("got\n%v\nwant\n%v", got, e)
	}
}

// FuzzParseAttributes: whatever ParseAttributes accepts is what it would have been in
// headers.
func FuzzParseAttributes(f *testing.F) {
	for _, change := range valid {
		b, err := event.AppendAttributes(nil, with(change))
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 1000 {
			f.Add(string(b), []byte("1"))
		}
	}
	for _, seed := range []string{"", "\x01", "\x02\x00", "\x01\x00\x01\x011\x02\x01a\x03\x01b", "\x01\x01\x01\x011\x02\x01a\x03\x01b\x08\x01x\xff\xff\xff\xff\xff"} {
		f.Add(seed, []byte("\xff"))
	}
	f.Fuzz(func(t *testing.T, attributes string, data []byte) {
		e, err := event.ParseAttributes(attributes, data)
		if err == nil {
			agree(t, e)
		} else if e.Context != nil || !strings.HasPrefix(err.Error(), "event: ") {
			t.Errorf("got %v, %v", e, err)
		}
	})
}

// FuzzRoundTrip builds an event from parts. If Check accepts it, the SDK does, and
// it arrives equal in every form.
func FuzzRoundTrip(f *testing.F) {
	for _, change := range valid {
		e := with(change)
		ext := ""
		if len(e.Extensions()) == 1 {
			ext, _ = e.Extensions()["a"].(string)
		}
		if len(e.Data()) < 1000 {
			f.Add(e.ID(), e.Source(), e.Type(), e.Subject(), e.DataContentType(), e.DataSchema(), "a", ext, e.Time().Unix(), int64(e.Time().Nanosecond()), e.Data(), e.DataBase64)
		}
	}
	f.Add("1", "?é", "t", "", "application/json; a=\"b\\\" c\"", "x://h/%zz", "0", "\"", int64(1<<40), int64(1), []byte(" {} "), true)
	f.Fuzz(func(t *testing.T, id, source, typ, subject, contentType, schema, name, ext string, seconds, nanoseconds int64, data []byte, base64 bool) {
		e := sdk.New()
		c := context(t, e)
		c.ID, c.Type = id, typ
		if c.SetSource(source) != nil || c.SetDataSchema(schema) != nil {
			return
		}
		if subject != "" {
			c.Subject = &subject
		}
		if contentType != "" {
			c.DataContentType = &contentType
		}
		if err := c.SetTime(time.Unix(seconds, nanoseconds)); err != nil {
			return
		}
		c.Extensions = map[string]any{name: ext}
		e.DataEncoded, e.DataBase64 = data, base64

		if event.Check(e) != nil {
			return
		}
		if err := e.Validate(); err != nil {
			t.Errorf("the SDK refuses a valid event: %v", err)
		}
		if strings.HasPrefix(strings.ToLower(contentType), "application/cloudevents") {
			roundTripNATS(t, e)
			return
		}
		roundTrip(t, e)
	})
}

// FuzzTime holds the package's own parser of times to package time's, which takes
// more than RFC 3339 has.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{
		"2026-01-02T03:04:05Z", "2024-02-29t23:59:59.123456789123z", "0000-01-01T00:00:00.5+23:59", "9999-12-31T23:59:59-00:01",
		"2023-02-29T00:00:00Z", "2026-1-02T03:04:05Z", "2026-01-02T03:04:05,5Z", "2026-01-02T03:04:05+24:00", "2026-01-02T03:04:60Z", "2026-01-02T03:04:05.Z",
	} {
		f.Add(seed)
	}
	form := regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
	f.Fuzz(func(t *testing.T, text string) {
		want, wantErr := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
		e, err := event.Binding{}.Decode(map[string][]string{
			"specversion": {"1.0"}, "id": {"1"}, "source": {"a"}, "type": {"b"}, "time": {text},
		}, nil)
		if ok := wantErr == nil && form.MatchString(text); ok != (err == nil) {
			t.Fatalf("%q: got %v, %v", text, e, err)
		}
		if err == nil && !context(t, e).Time.Time.Equal(want) {
			t.Errorf("%q: got %v, want %v", text, e.Time(), want)
		}
	})
}

// FuzzJSON holds the package's own JSON scanner to encoding/json's.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e+3,"\u00e9\\",true,false,null,{}]}`, "[[]", "01", "\"\xff\"", " 1 ", `{"a":{"b":[{}]}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := text == "" || json.Valid([]byte(text)) && utf8.ValidString(text)
		if got := isJSON(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	})
}
