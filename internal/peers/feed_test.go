package main

import (
	"encoding/json"
	"testing"

	"github.com/catchment-events/catchment/event"
)

// All ids are different, of one feed, of its parts, and of the next.
func TestFeed(t *testing.T) {
	seen := make(map[string]bool)
	empty := func(f *feed, some int) {
		t.Helper()
		for f.left() > 0 {
			for _, e := range f.take(some) {
				if seen[e.ID()] {
					t.Fatalf("%s comes twice", e.ID())
				}
				seen[e.ID()] = true
			}
		}
	}
	empty(newFeed(3*ringSize+17), 1)
	empty(newFeed(3*ringSize+17), batchSize)
	for _, f := range newFeed(100).split(callers) {
		empty(f, 1)
	}
	for _, f := range newFeed(2 * ringSize).split(callers) {
		empty(f, 1)
	}
	if want := 2*(3*ringSize+17) + 100 + 2*ringSize; len(seen) != want {
		t.Errorf("%d events, want %d", len(seen), want)
	}
}

func TestPayload(t *testing.T) {
	e := newFeed(1).take(1)[0]
	if err := event.Check(e); err != nil {
		t.Error(err)
	}
	if len(e.Data()) != payloadSize || !json.Valid(e.Data()) {
		t.Errorf("%d bytes of data, want %d of JSON: %s", len(e.Data()), payloadSize, e.Data())
	}
	header := make(map[string][]string)
	if _, err := event.NATS.Encode(e, header); err != nil {
		t.Fatal(err)
	}
	for _, a := range attributes { // what peers carry is what the event has
		if got := header["ce-"+a.name]; len(got) != 1 || got[0] != a.value {
			t.Errorf("%s is %q, want %q", a.name, got, a.value)
		}
	}
	if len(header) != len(attributes)+1 {
		t.Errorf("%d headers, want those of %d attributes and the id: %v", len(header), len(attributes), header)
	}
}
