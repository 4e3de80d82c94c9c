package event_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/catchment-events/catchment/event"
)

// agree holds the flat form to the headers of event.NATS: what one of them carries
// the other does, as the same event in every field, and what one refuses the other
// refuses in the same words.
func agree(t *testing.T, e event.Event) {
	t.Helper()
	const before = "before"
	header := make(map[string][]string)
	body, wantErr := event.NATS.Encode(e, header)
	flat, err := event.AppendAttributes([]byte(before), e)
	if !sameError(wantErr, err) {
		t.Fatalf("AppendAttributes: %v, Encode: %v", err, wantErr)
	}
	if err != nil {
		return
	}
	if !strings.HasPrefix(string(flat), before) {
		t.Fatalf("%q does not begin with what was there before", flat)
	}
	want, wantErr := event.NATS.Decode(header, body)
	got, err := event.ParseAttributes(string(flat[len(before):]), body)
	if !sameError(wantErr, err) {
		t.Fatalf("ParseAttributes: %v, Decode: %v", err, wantErr)
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("got\n%#v\nwant\n%#v", got, want)
	}
}

// sameError compares texts. With two errors in one event it is chance which one
// is found first.
func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error() || strings.Contains(a.Error(), "attribute"))
}

func TestAttributes(t *testing.T) {
	agree(t, typical(100))
	agree(t, full())
	for name, change := range valid {
		t.Run(name, func(t *testing.T) {
			e := with(change)
			agree(t, e)
			flat, err := event.AppendAttributes(nil, e)
			if err != nil {
				t.Fatal(err)
			}
			got, err := event.ParseAttributes(string(flat), e.Data())
			if err != nil {
				t.Fatal(err)
			}
			same(t, "flat", e, got)
		})
	}
	for _, test := range invalid {
		t.Run(test.name, func(t *testing.T) { agree(t, with(test.change)) })
	}
}

// TestAttributesAreStable holds the form to what is on disks.
func TestAttributesAreStable(t *testing.T) {
	e := full()
	e.SetExtension("exstring", strings.Repeat("x", 200))
	for _, name := range []string{"exbool", "exint", "exbinary", "exurl", "exref", "extime"} {
		e.SetExtension(name, nil)
	}
	got, err := event.AppendAttributes(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	want := "\x01\x01" +
		"\x01\x011" +
		"\x02\x07/orders" +
		"\x03\x0dorder.created" +
		"\x04\x10application/json" +
		"\x05\x23https://example.com/schema.json?v=1" +
		"\x06\x0aorder 1/é" +
		"\x07\x0c\x00\x00\x00\x00\x69\x57\x27\x95\x07\x5b\xcd\x15" +
		"\x08\x08exstring\xc8\x01" + strings.Repeat("x", 200)
	if string(got) != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestParseAttributesRefuses(t *testing.T) {
	const id, source, typ = "\x01\x011", "\x02\x02/a", "\x03\x01t"
	const most = id + source + typ
	for _, test := range []struct{ name, flat string }{
		{"nothing", ""},
		{"a version only", "\x01"},
		{"another version", "\x02\x00" + most},
		{"no id", "\x01\x00" + source + typ},
		{"empty id", "\x01\x00\x01\x00" + source + typ},
		{"no source", "\x01\x00" + id + typ},
		{"empty source", "\x01\x00" + id + "\x02\x00" + typ},
		{"no type", "\x01\x00" + id + source},
		{"twice", "\x01\x00" + id + id + source + typ},
		{"another order", "\x01\x00" + source + id + typ},
		{"a specversion", "\x01\x00\x00\x031.0" + most},
		{"an unknown attribute", "\x01\x00" + most + "\x09\x01x"},
		{"a kind only", "\x01\x00" + most + "\x06"},
		{"half a value", "\x01\x00" + most + "\x06\x02x"},
		{"half a length", "\x01\x00" + most + "\x06\x80"},
		{"a length without end", "\x01\x00" + most + "\x06\xff\xff\xff\xff\xff\x01"},
		{"not UTF-8", "\x01\x00" + most + "\x06\x01\xff"},
		{"not a source", "\x01\x00" + id + "\x02\x02:x" + typ},
		{"not a schema", "\x01\x00" + most + "\x05\x01%"},
		{"a short time", "\x01\x00" + most + "\x07\x04\x00\x00\x00\x00"},
		{"a late time", "\x01\x00" + most + "\x07\x0c\x00\x00\x00\xff\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"too many nanoseconds", "\x01\x00" + most + "\x07\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00"},
		{"an extension's name", "\x01\x01" + most + "\x08\x01A\x01x"},
		{"an extension data", "\x01\x01" + most + "\x08\x04data\x01x"},
		{"an extension not UTF-8", "\x01\x01" + most + "\x08\x01a\x01\xff"},
		{"an extension twice", "\x01\x02" + most + "\x08\x01a\x01x\x08\x01a\x01x"},
		{"an extension without value", "\x01\x01" + most + "\x08\x01a"},
		{"an attribute after an extension", "\x01\x01" + id + source + "\x08\x01a\x01x" + typ},
		{"an extension more than said", "\x01\x00" + most + "\x08\x01a\x01x"},
		{"an extension less than said", "\x01\x02" + most + "\x08\x01a\x01x"},
		{"a byte more", "\x01\x00" + most + "\x00"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, err := event.ParseAttributes(test.flat, nil)
			if err == nil {
				t.Fatalf("accepted as\n%v", e)
			}
			if !strings.HasPrefix(err.Error(), "event: ") || e.Context != nil {
				t.Errorf("got %v, %v", e, err)
			}
		})
	}
	if _, err := event.ParseAttributes("\x01\x00"+most, nil); err != nil {
		t.Errorf("the rest is refused: %v", err)
	}
}

// TestAttributesShareNothing changes the buffer after the fact, as one who uses it
// again would.
func TestAttributesShareNothing(t *testing.T) {
	e := full()
	want := event.Clone(e)
	buffer, err := event.AppendAttributes(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := event.ParseAttributes(string(buffer), e.Data())
	if err != nil {
		t.Fatal(err)
	}
	for i := range buffer {
		buffer[i] = '#'
	}
	same(t, "the parsed", want, got)
	same(t, "the original", want, e)
	if _, err := event.AppendAttributes(nil, event.Event{}); err == nil || errors.Unwrap(err) == nil {
		t.Errorf("the zero Event: %v", err)
	}
}
