package messaging_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// TestStartText holds each start to its text, and the text to the start.
func TestStartText(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 2, 3, 4, time.FixedZone("", 3600))
	tests := []struct {
		name  string
		start messaging.Start
		want  string
	}{
		{"zero value", messaging.Start{}, "first"},
		{"StartFirst", messaging.StartFirst(), "first"},
		{"StartNew", messaging.StartNew(), "new"},
		{"StartAt", messaging.StartAt(at), "at 2026-11-30T00:02:03.000000004Z"},
		{"StartAt of a whole second", messaging.StartAt(time.Unix(1, 0)), "at 1970-01-01T00:00:01Z"},
		{"StartAt before 1970", messaging.StartAt(time.Unix(-1, 1)), "at 1969-12-31T23:59:59.000000001Z"},
		{"StartAt too early", messaging.StartAt(time.Time{}), "at 1677-09-21T00:12:43.145224192Z"},
		{"StartAt too late", messaging.StartAt(at.AddDate(1000, 0, 0)), "at 2262-04-11T23:47:16.854775807Z"},
		{"StartFrom", messaging.StartFrom(42), "from 42"},
		{"StartFrom 0", messaging.StartFrom(0), "from 0"},
		{"StartFrom the last", messaging.StartFrom(math.MaxUint64), "from 18446744073709551615"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.start.String(); got != test.want {
				t.Errorf("String() = %q, want %q", got, test.want)
			}
			var got messaging.Start
			if err := got.UnmarshalText([]byte(test.want)); err != nil || got != test.start {
				t.Errorf("UnmarshalText(%q) gave %v, %v, want %v", test.want, got, err, test.start)
			}
			text, err := json.Marshal(test.start)
			if err != nil {
				t.Fatal(err)
			}
			got = messaging.StartFrom(7)
			if err := json.Unmarshal(text, &got); err != nil || got != test.start {
				t.Errorf("JSON %s gave %v, %v, want %v", text, got, err, test.start)
			}
		})
	}
}

// TestStartTextInvalid holds UnmarshalText to what MarshalText makes, and to
// leaving the start alone otherwise.
func TestStartTextInvalid(t *testing.T) {
	for _, text := range []string{
		"", " ", "First", "last", "first ", "first x", "new x", "at", "at ", "at yesterday", "from", "from ", "from -1", "from 1 ",
		"from x", "from 18446744073709551616", "from\t1",
	} {
		got := messaging.StartFrom(7)
		if err := got.UnmarshalText([]byte(text)); err == nil || got != messaging.StartFrom(7) {
			t.Errorf("UnmarshalText(%q) = %v, start %v; want an error and no change", text, err, got)
		}
	}
}

// TestStart holds the accessors to their kind, and starts to being comparable.
func TestStart(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC)
	if messaging.StartFirst() != (messaging.Start{}) {
		t.Error("the zero value is not StartFirst")
	}
	if messaging.StartAt(at) != messaging.StartAt(at.In(time.FixedZone("", 3600))) {
		t.Error("StartAt of the same time in two zones differs")
	}
	starts := []messaging.Start{messaging.StartFirst(), messaging.StartNew(), messaging.StartAt(at), messaging.StartFrom(0), messaging.StartFrom(9)}
	for i, s := range starts {
		for j, other := range starts {
			if (s == other) != (i == j) {
				t.Errorf("%v == %v is %v", s, other, s == other)
			}
		}
		if got := s.New(); got != (i == 1) {
			t.Errorf("%v.New() = %v", s, got)
		}
		if got, ok := s.Time(); ok != (i == 2) || ok && !got.Equal(at) {
			t.Errorf("%v.Time() = %v, %v", s, got, ok)
		}
		if got, ok := s.Sequence(); ok != (i >= 3) || i == 4 && got != 9 {
			t.Errorf("%v.Sequence() = %v, %v", s, got, ok)
		}
	}
}
