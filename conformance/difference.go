package conformance

import (
	"bytes"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/event"
)

// difference says in what an event differs from the one that was published; ""
// if they are equal. It compares by itself what event.Equal compares.
func difference(want, got event.Event) string {
	if (want.Context == nil) != (got.Context == nil) {
		return fmt.Sprintf("one of them is the zero Event: published %v, arrived %v", want.Context, got.Context)
	}
	for _, a := range []struct {
		name      string
		want, got any
	}{
		{"id", want.ID(), got.ID()},
		{"source", want.Source(), got.Source()},
		{"specversion", want.SpecVersion(), got.SpecVersion()},
		{"type", want.Type(), got.Type()},
		{"subject", want.Subject(), got.Subject()},
		{"datacontenttype", want.DataContentType(), got.DataContentType()},
		{"dataschema", want.DataSchema(), got.DataSchema()},
		{"time", nanos(want.Time()), nanos(got.Time())},
		{"number of extensions", len(want.Extensions()), len(got.Extensions())},
	} {
		if a.want != a.got {
			return fmt.Sprintf("event %q published with %s %#v, arrived with %#v", want.ID(), a.name, a.want, a.got)
		}
	}
	extensions := got.Extensions()
	for name, v := range want.Extensions() {
		w, err := canonical(v)
		if err != nil {
			return fmt.Sprintf("the suite published an extension %s of no valid type: %v", name, err)
		}
		if g, ok := extensions[name]; !ok || g != any(w) {
			return fmt.Sprintf("event %q published with extension %s %#v, arrived with %#v (%T)", want.ID(), name, w, g, g)
		}
	}
	if !bytes.Equal(want.Data(), got.Data()) {
		return fmt.Sprintf("event %q published with %d bytes of data, arrived with %d: %s",
			want.ID(), len(want.Data()), len(got.Data()), firstDifference(want.Data(), got.Data()))
	}
	if !event.Equal(want, got) {
		return fmt.Sprintf("event %q: event.Equal is false", want.ID())
	}
	return ""
}

func firstDifference(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("they differ from byte %d on, %.20q and %.20q", i, a[i:], b[i:])
}

// nanos returns the nanoseconds of a time, and those of no time as 0.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// at returns the element of index i, or the zero value.
func at[T any](s []T, i int) (v T) {
	if i < len(s) {
		v = s[i]
	}
	return v
}
