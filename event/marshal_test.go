package event_test

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
)

func TestMarshalRoundTrip(t *testing.T) {
	for name, change := range valid {
		t.Run(name, func(t *testing.T) {
			roundTrip(t, with(change))
		})
	}
	t.Run("full", func(t *testing.T) { roundTrip(t, full()) })
	t.Run("binary of each byte", func(t *testing.T) {
		for c := range 256 {
			roundTrip(t, with(setData("text/plain", string([]byte{byte(c)}))))
		}
	})
}

// roundTrip sends a valid event through every form that the package has.
func roundTrip(t *testing.T, e event.Event) {
	t.Helper()
	original := event.Clone(e)
	b, err := event.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) {
		t.Errorf("not JSON: %s", b)
	}
	got, err := event.Unmarshal(b)
	if err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	same(t, "JSON", e, got)
	if err := got.Validate(); err != nil {
		t.Errorf("the SDK refuses the event: %v", err)
	}
	again, err := event.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	got, err = event.Unmarshal(again)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "JSON twice", e, got)

	got, err = event.NATS.Decode(map[string][]string{"content-TYPE": {"Application/CloudEvents+JSON; charset=utf-8"}}, b)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "structured mode", e, got)
	got, err = event.NATS.Decode(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "structured mode without a header", e, got)

	for _, binding := range []event.Binding{
		event.NATS,
		{Prefix: "ce_", ContentType: "content-type"},
		{Prefix: "Ce-", ContentType: "Content-Type", Percent: true},
		{},
	} {
		header := make(map[string][]string)
		body, err := binding.Encode(e, header)
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range header {
			if strings.ContainsAny(name+values[0], "\r\n\x00") || len(values) != 1 {
				t.Errorf("header %q: %q", name, values)
			}
		}
		got, err := binding.Decode(header, body)
		if err != nil {
			t.Fatalf("%v in %q", err, header)
		}
		same(t, "binary mode", e, got)
		b, err := event.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if got, err = event.Unmarshal(b); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		same(t, "binary mode, then JSON", e, got)
	}
	agree(t, e)
	same(t, "the original", original, e)
}

func same(t *testing.T, form string, want, got event.Event) {
	t.Helper()
	if !event.Equal(want, got) {
		t.Errorf("%s: not equal; got\n%v\nwant\n%v", form, got, want)
	}
	if err := event.Check(got); err != nil {
		t.Errorf("%s: %v", form, err)
	}
	// An oracle that knows nothing of Equal.
	if want.ID() != got.ID() || want.Source() != got.Source() || want.Type() != got.Type() ||
		want.Subject() != got.Subject() || want.DataSchema() != got.DataSchema() ||
		want.DataContentType() != got.DataContentType() || !want.Time().Equal(got.Time()) ||
		string(want.Data()) != string(got.Data()) || len(want.Extensions()) != len(got.Extensions()) {
		t.Errorf("%s: got\n%v\nwant\n%v", form, got, want)
	}
}

func TestMarshalForm(t *testing.T) {
	for _, test := range []struct {
		name   string
		change change
		want   string // after the required attributes
	}{
		{"extensions keep JSON's types and are in order", func(e *event.Event, _ *sdk.EventContextV1) {
			e.SetExtension("c", true)
			e.SetExtension("b", -7)
			e.SetExtension("a", `x"\é`)
			e.SetExtension("d", []byte{1})
		}, `,"a":"x\"\\é","b":-7,"c":true,"d":"AQ=="`},
		{"JSON is embedded", setData("application/json", `{"n": 12345678901234567890}`), `,"datacontenttype":"application/json","data":{"n": 12345678901234567890}`},
		{"+json is embedded", setData("a/b+json", "[]"), `,"datacontenttype":"a/b+json","data":[]`},
		{"JSON set as bytes is embedded", func(e *event.Event, _ *sdk.EventContextV1) {
			if err := e.SetData("application/json", []byte("1")); err != nil {
				panic(err)
			}
		}, `,"datacontenttype":"application/json","data":1`},
		{"text is a string", setData("text/plain", "a\n\x01"), `,"datacontenttype":"text/plain","data":"a\n\u0001"`},
		{"binary is base64", setData("a/b", "\xff"), `,"datacontenttype":"a/b","data_base64":"/w=="`},
		{"space around JSON", setData("a/json", " 1"), `,"datacontenttype":"a/json","data_base64":"IDE="`},
		{"JSON under none", setData("", "1"), `,"data":1`},
		{"text under none", setData("", "a"), `,"data_base64":"YQ=="`},
		{"empty data", setData("a/json", ""), `,"datacontenttype":"a/json"`},
	} {
		got, err := event.Marshal(with(test.change))
		want := `{"specversion":"1.0","id":"1","source":"/orders","type":"order.created"` + test.want + `}`
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", test.name, err, diff)
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	for _, test := range invalid {
		if b, err := event.Marshal(with(test.change)); err == nil || b != nil {
			t.Errorf("%s: got %s, %v", test.name, b, err)
		}
	}
}

// TestUnmarshal follows the rules of the CloudEvents JSON format.
func TestUnmarshal(t *testing.T) {
	const required = `"specversion":"1.0","id":"1","source":"/orders","type":"order.created"`
	for _, test := range []struct {
		name, members string
		want          change
	}{
		{"minimal", required, valid["minimal"]},
		{"whitespace", "\r\n\t " + strings.ReplaceAll(required, ",", " ,\n") + " ", valid["minimal"]},
		{"null for optional", required + `,"datacontenttype":null,"dataschema":null,"subject":null,"time":null,"a":null`, valid["minimal"]},
		{"null data_base64", required + `,"data_base64":null`, valid["minimal"]},
		{"data and null data_base64", required + `,"data_base64":null,"data":1`, setData("", "1")},
		{"null data", required + `,"data":null`, setData("", "null")},
		{"null data under JSON", `"datacontenttype":"a/json","data":null,` + required, setData("a/json", "null")},
		{"null data under text", `"datacontenttype":"text/plain","data":null,` + required, setData("text/plain", "")},
		{"data before its type", `"data":"a\n",` + required + `,"datacontenttype":"text/plain"`, setData("text/plain", "a\n")},
		{"JSON string", required + `,"data":"a\n","datacontenttype":"Application/X+JSON"`, setData("Application/X+JSON", `"a\n"`)},
		{"data kept as it stands", required + `,"data": { "n" : 1.0e400 } `, setData("", `{ "n" : 1.0e400 }`)},
		{"base64 before its type", `"data_base64":"\u002B+\/\/",` + required + `,"datacontenttype":"a/b"`, setData("a/b", "\xfb\xef\xff")},
		{"base64 of JSON", required + `,"datacontenttype":"a/json","data_base64":"IDE="`, setData("a/json", " 1")},
		{"base64 under none", required + `,"data_base64":"eA=="`, setData("", "x")},
		{"empty base64", required + `,"data_base64":""`, valid["minimal"]},
		{"escaped name and value", `"\u0069d":"\u0031",` + strings.Replace(required, `"id":"1",`, "", 1), valid["minimal"]},
		{"surrogate pair", required + `,"subject":"\ud83d\ude00 \u00e9 \" \\ \/"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetSubject("😀 é \" \\ /") }},
		{"bool", required + `,"a":false`, setExtension("a", false)},
		{"int", required + `,"a":-2147483648`, setExtension("a", int32(-1<<31))},
		{"string that looks like a number", required + `,"a":"4002909746823859279"`, setExtension("a", "4002909746823859279")},
		{"lower-case time", required + `,"time":"1970-01-01t00:00:01.5z"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(epoch(1, 5e8)) }},
		{"time with zone", required + `,"time":"1970-01-01T01:00:01+01:00"`, func(e *event.Event, _ *sdk.EventContextV1) { e.SetTime(epoch(1, 0)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := with(test.want)
			got, err := event.Unmarshal([]byte("{" + test.members + "}"))
			if err != nil {
				t.Fatal(err)
			}
			if !event.Equal(want, got) {
				t.Errorf("got\n%v\nwant\n%v", got, want)
			}
			if diff := cmp.Diff(want.Extensions(), got.Extensions()); diff != "" {
				t.Errorf("extensions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	const required = `"specversion":"1.0","id":"1","source":"/orders","type":"order.created"`
	without := func(name string) string {
		return strings.Trim(strings.Replace(","+required, `,"`+name+`":`+map[string]string{
			"specversion": `"1.0"`, "id": `"1"`, "source": `"/orders"`, "type": `"order.created"`,
		}[name], "", 1), ",")
	}
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "object"},
		{"null", "null", "object"},
		{"batch", "[{" + required + "}]", "object"},
		{"BOM", "\ufeff{" + required + "}", "object"},
		{"garbage after", "{" + required + "}}", "follows"},
		{"second event", "{" + required + "} {}", "follows"},
		{"unfinished", "{" + required, "comma"},
		{"trailing comma", "{" + required + ",}", "name"},
		{"leading comma", "{," + required + "}", "name"},
		{"no colon", `{"a" "b"}`, "colon"},
		{"no value", "{" + required + `,"a":}`, `"a"`},
		{"not UTF-8", "{" + required + ",\"a\":\"\xff\"}", "UTF-8"},
		{"raw control character", "{" + required + ",\"a\":\"\n\"}", `"a"`},
		{"escaped control character", "{" + required + `,"a":"\n"}`, `"a"`},
		{"bad escape", "{" + required + `,"a":"\x"}`, `"a"`},
		{"half a surrogate pair", "{" + required + `,"a":"\ud83d"}`, "surrogate"},
		{"second half", "{" + required + `,"a":"\ude00\ud83d"}`, "surrogate"},
		{"two first halves", "{" + required + `,"a":"\ud83d\ud83d"}`, "surrogate"},
		{"half a pair in the name", "{" + required + `,"\ud83d":"a"}`, "surrogate"},
		{"half a pair in text", "{" + required + `,"datacontenttype":"a/b","data":"\ud83d"}`, "surrogate"},

		{"no specversion", "{" + without("specversion") + "}", `"specversion"`},
		{"no id", "{" + without("id") + "}", `"id"`},
		{"no source", "{" + without("source") + "}", `"source"`},
		{"no type", "{" + without("type") + "}", `"type"`},
		{"null id", "{" + without("id") + `,"id":null}`, `"id"`},
		{"null specversion", "{" + without("specversion") + `,"specversion":null}`, `"specversion"`},
		{"empty id", "{" + without("id") + `,"id":""}`, `"id"`},
		{"empty source", "{" + without("source") + `,"source":""}`, `"source"`},
		{"empty type", "{" + without("type") + `,"type":""}`, `"type"`},
		{"specversion 0.3", "{" + without("specversion") + `,"specversion":"0.3"}`, `"specversion"`},
		{"specversion number", "{" + without("specversion") + `,"specversion":1.0}`, `"specversion"`},
		{"id number", "{" + without("id") + `,"id":1}`, `"id"`},
		{"source unparsable", "{" + without("source") + `,"source":"1:2"}`, `"source"`},
		{"type object", "{" + without("type") + `,"type":{}}`, `"type"`},
		{"subject bool", "{" + required + `,"subject":true}`, `"subject"`},
		{"empty subject", "{" + required + `,"subject":""}`, `"subject"`},
		{"empty schema", "{" + required + `,"dataschema":""}`, `"dataschema"`},
		{"relative schema", "{" + required + `,"dataschema":"/a"}`, `"dataschema"`},
		{"unparsable schema", "{" + required + `,"dataschema":"%"}`, `"dataschema"`},
		{"empty content type", "{" + required + `,"datacontenttype":""}`, `"datacontenttype"`},
		{"content type not RFC 2046", "{" + required + `,"datacontenttype":"xyz"}`, `"datacontenttype"`},
		{"time", "{" + required + `,"time":"yesterday"}`, `"time"`},
		{"empty time", "{" + required + `,"time":""}`, `"time"`},
		{"time without zone", "{" + required + `,"time":"2020-01-01T00:00:00"}`, `"time"`},
		{"time with one digit", "{" + required + `,"time":"2020-01-01T0:00:00Z"}`, `"time"`},
		{"time with comma", "{" + required + `,"time":"2020-01-01T00:00:00,5Z"}`, `"time"`},
		{"time with wide zone", "{" + required + `,"time":"2020-01-01T00:00:00+24:00"}`, `"time"`},
		{"day that does not exist", "{" + required + `,"time":"2021-02-29T00:00:00Z"}`, `"time"`},
		{"leap second", "{" + required + `,"time":"2016-12-31T23:59:60Z"}`, `"time"`},
		{"time with bare point", "{" + required + `,"time":"2020-01-01T00:00:00.Z"}`, `"time"`},
		{"long time", "{" + required + `,"time":"2020-01-01T00:00:00.` + strings.Repeat("1", 99) + `"}`, `"time"`},

		{"extension upper case", "{" + required + `,"Abc":"x"}`, `"Abc"`},
		{"core upper case", "{" + required + `,"ID":"x"}`, `"ID"`},
		{"extension name", "{" + required + `,"a_b":"x"}`, `"a_b"`},
		{"empty name", "{" + required + `,"":"x"}`, `""`},
		{"extension object", "{" + required + `,"a":{}}`, `"a"`},
		{"extension array", "{" + required + `,"a":[]}`, `"a"`},
		{"extension fraction", "{" + required + `,"a":1.5}`, `"a"`},
		{"extension fraction that is whole", "{" + required + `,"a":1.0}`, `"a"`},
		{"extension exponent", "{" + required + `,"a":1e2}`, `"a"`},
		{"extension out of range", "{" + required + `,"a":2147483648}`, `"a"`},
		{"leading zero", "{" + required + `,"a":01}`, "comma"},
		{"plus", "{" + required + `,"a":+1}`, `"a"`},

		{"duplicate core", "{" + required + `,"id":"1"}`, `"id"`},
		{"duplicate null", "{" + required + `,"subject":null,"subject":"a"}`, `"subject"`},
		{"duplicate extension", "{" + required + `,"a":"1","a":"1"}`, `"a"`},
		{"duplicate null extension", "{" + required + `,"a":null,"a":null}`, `"a"`},
		{"duplicate by escape", "{" + required + `,"\u0069d":"1"}`, `"id"`},
		{"duplicate data", "{" + required + `,"data":1,"data":1}`, "data"},
		{"duplicate null data_base64", "{" + required + `,"data_base64":null,"data_base64":null}`, "data_base64"},

		{"data and data_base64", "{" + required + `,"data":1,"data_base64":"eA=="}`, "both"},
		{"null data and data_base64", "{" + required + `,"data":null,"data_base64":"eA=="}`, "both"},
		{"data_base64 number", "{" + required + `,"data_base64":1}`, "data_base64"},
		{"data_base64 object", "{" + required + `,"data_base64":{}}`, "data_base64"},
		{"data_base64 bad", "{" + required + `,"data_base64":"!"}`, "data_base64"},
		{"data_base64 unpadded", "{" + required + `,"data_base64":"eA"}`, "data_base64"},
		{"data_base64 not JSON under JSON", "{" + required + `,"data_base64":"eA==","datacontenttype":"a/json"}`, "data"},
		{"data object under text", "{" + required + `,"data":{},"datacontenttype":"text/plain"}`, "data"},
		{"data upper case", "{" + required + `,"Data":1}`, `"Data"`},
		{"datacontentencoding", "{" + required + `,"data":"x","data_base65":1}`, `"data_base65"`},
		{"bad data", "{" + required + `,"data":{"a":[1,]}}`, "data"},
		{"deep data", "{" + required + `,"data":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + "}", "data"},
		{"65 extensions", "{" + required + manyMembers(65) + "}", "65"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, err := event.Unmarshal([]byte(test.text))
			if err == nil {
				t.Fatalf("accepted as\n%v", e)
			}
			if !strings.HasPrefix(err.Error(), "event: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q does not say %s", err, test.want)
			}
			if e.Context != nil {
				t.Error("an event came with the error")
			}
		})
	}
}

func TestUnmarshalKeepsNothing(t *testing.T) {
	e := full()
	b, err := event.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := event.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	same(t, "after the input changed", e, got)
}

func TestUnmarshalRealEvent(t *testing.T) {
	b, err := os.ReadFile("testdata/google-pubsub.json")
	if err != nil {
		t.Fatal(err)
	}
	e, err := event.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if e.Source() != "//pubsub.googleapis.com/projects/test-project/topics/my-topic" || e.ID() != "3103425958877813" {
		t.Errorf("got %v", e)
	}
	type published struct {
		Message struct{ OrderingKey string }
	}
	if v, err := event.Data[published](e); err != nil || v.Message.OrderingKey != "ordering-key" {
		t.Errorf("got %+v, %v", v, err)
	}
	roundTrip(t, e)
}

// The JSON scanner is the package's own, so that it is held to encoding/json's.
func TestJSONIsWhatEncodingJSONSays(t *testing.T) {
	for _, text := range []string{
		"0", "-0", "01", "-", "1.", ".1", "1e", "1e+", "1E-5", "1.5e3", "--1", "+1", "0x1", "1 ", " 1",
		"true", "tru", "truex", "false", "null", "nul", "NaN", `""`, `"`, `"\`, `"\"`, `"\u12"`, `"\u12aF"`, `"\u12ag"`, "\"\t\"",
		`"\b\f\n\r\t\/\\\""`, `"\a"`, "[]", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[[],{}]", "[}", "{]",
		"{}", "{", "}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `{a:1}`, `{1:1}`, `{"a":{"b":[{}]}}`, `{"a":1]`, `[{"a":1]}`,
		strings.Repeat("[", 10000) + strings.Repeat("]", 10000), strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
		strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), strings.Repeat(`[{"a":`, 70) + strings.Repeat("}]", 70), " ",
	} {
		if got, want := isJSON(text), json.Valid([]byte(text)); got != want {
			t.Errorf("%.40q: got %v, want %v", text, got, want)
		}
	}
}

func isJSON(data string) bool {
	return event.Check(with(setData("application/json", data))) == nil
}

// TestUnmarshalMemory holds SEC-3 to numbers.
func TestUnmarshalMemory(t *testing.T) {
	for name, text := range map[string]string{
		"brackets":   `{"data":` + strings.Repeat("[", 1<<20),
		"extensions": "{" + strings.TrimPrefix(manyMembers(50000), ",") + "}",
		"escapes":    `{"id":"` + strings.Repeat(`\u0001`, 1<<17) + `"}`,
		"base64":     `{"specversion":"1.0","id":"1","source":"a","type":"b","data_base64":"` + strings.Repeat("AAAA", 1<<18) + `"}`,
		"name":       `{"` + strings.Repeat("a", 1<<20) + `":1}`,
		"bad name":   `{"` + strings.Repeat("A", 1<<20) + `":1}`,
		"source":     `{"source":"` + strings.Repeat("%41", 1<<18) + `"}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = event.Unmarshal([]byte(text))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 20*uint64(len(text)) {
			t.Errorf("%s: %d bytes of input allocate %d", name, len(text), n)
		}
	}
}
