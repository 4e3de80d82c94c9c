package event_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
)

func TestNew(t *testing.T) {
	for _, test := range []struct {
		name        string
		data        any
		contentType string
		want        string
	}{
		{"no data", nil, "", ""},
		{"struct", struct{ A int }{1}, "application/json", `{"A":1}`},
		{"string", "x", "application/json", `"x"`},
		{"null", (*int)(nil), "application/json", "null"},
		{"bytes", []byte{0, 255}, "application/octet-stream", "\x00\xff"},
		{"no bytes", []byte{}, "", ""},
		{"raw", json.RawMessage(` {"n": 12345678901234567890} `), "application/json", ` {"n": 12345678901234567890} `},
		{"no raw", json.RawMessage(nil), "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := time.Now()
			e, err := event.New("/orders", "order.created", test.data)
			if err != nil {
				t.Fatal(err)
			}
			if err := event.Check(e); err != nil {
				t.Error(err)
			}
			if e.Source() != "/orders" || e.Type() != "order.created" || e.SpecVersion() != "1.0" {
				t.Errorf("got %v", e)
			}
			if e.DataContentType() != test.contentType || string(e.Data()) != test.want {
				t.Errorf("got %q of type %q, want %q of type %q", e.Data(), e.DataContentType(), test.want, test.contentType)
			}
			if at := e.Time(); at.Before(before.Add(-time.Microsecond)) || at.After(time.Now()) || at.Location() != time.UTC {
				t.Errorf("time is %v", at)
			}
		})
	}
}

func TestNewCopiesData(t *testing.T) {
	data := []byte(`"a"`)
	bytes, err := event.New("/a", "b", data)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := event.New("/a", "b", json.RawMessage(data))
	if err != nil {
		t.Fatal(err)
	}
	data[1] = 'z'
	for _, e := range []event.Event{bytes, raw} {
		if got := string(e.Data()); got != `"a"` {
			t.Errorf("data became %s", got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		name, source, typ string
		data              any
		want              string
	}{
		{"no source", "", "b", nil, `"source"`},
		{"bad source", "http://u:secret@h:port", "b", nil, `"source"`},
		{"no type", "/a", "", nil, `"type"`},
		{"long type", "/a", strings.Repeat("t", 256), nil, `"type"`},
		{"unencodable", "/a", "b", func() {}, "data"},
		{"raw that is not JSON", "/a", "b", json.RawMessage("{"), "data"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, err := event.New(test.source, test.typ, test.data)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error is %v", err)
			}
			if e.Context != nil {
				t.Error("an event came with the error")
			}
		})
	}
}

func TestIDs(t *testing.T) {
	const goroutines, each = 8, 2000
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all []string
	)
	for range goroutines {
		wg.Go(func() {
			ids := make([]string, each)
			for i := range ids {
				e, err := event.New("/a", "b", nil)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = e.ID()
				if !form.MatchString(ids[i]) {
					t.Errorf("%q is not a version 7 UUID", ids[i])
				}
			}
			if !slices.IsSorted(ids) {
				t.Error("ids of one goroutine are out of order")
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, ids...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != goroutines*each {
		t.Errorf("%d ids are distinct, want %d", n, goroutines*each)
	}
}
