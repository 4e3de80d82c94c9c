package messaging_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/messaging"
)

var compareStart = cmp.Comparer(func(a, b messaging.Start) bool { return a == b })

// TestNormalizeDefaults holds the zero fields to what they stand for.
func TestNormalizeDefaults(t *testing.T) {
	want := messaging.Subscription{Name: "billing", AckWait: 30 * time.Second, MaxInFlight: 1024}
	got, err := messaging.Subscription{Name: "billing"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, compareStart); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if again, err := got.Normalize(); err != nil || !cmp.Equal(again, got, compareStart) {
		t.Errorf("normalized twice: %+v, %v; want the same as once", again, err)
	}
	full := messaging.Subscription{
		Name: "a", Types: []string{"a.*", "b"}, Start: messaging.StartNew(), AckWait: 1, MaxInFlight: 1,
		MaxAttempts: 1, Expires: 1, DeadLettersOf: "b",
	}
	if got, err := full.Normalize(); err != nil || !cmp.Equal(got, full, compareStart) {
		t.Errorf("Normalize changed %+v to %+v, %v", full, got, err)
	}
}

// TestNormalizeTypes holds Types to a set, and the caller's slice to staying
// the caller's.
func TestNormalizeTypes(t *testing.T) {
	types := []string{"b.>", "a", "b.>", "a.*", "a"}
	before := slices.Clone(types)
	got, err := messaging.Subscription{Name: "a", Types: types}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "a.*", "b.>"}, got.Types); diff != "" {
		t.Errorf("Types (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, types); diff != "" {
		t.Errorf("the caller's slice was changed (-before +after):\n%s", diff)
	}
	got.Types[0] = "changed"
	if types[1] != "a" {
		t.Error("the result shares memory with the caller's slice")
	}
	if got, err := (messaging.Subscription{Name: "a", Types: []string{}}).Normalize(); err != nil || got.Types != nil {
		t.Errorf("empty Types became %#v, %v, want nil", got.Types, err)
	}
}

// TestNormalizeNames holds names to their grammar [SUB-7].
func TestNormalizeNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, name := range []string{"a", "0", "a-b_c9", "9-", "a_", long} {
		for _, sub := range []messaging.Subscription{{Name: name}, {Name: "a", DeadLettersOf: name}} {
			if _, err := sub.Normalize(); err != nil {
				t.Errorf("%+v: %v, want nil", sub, err)
			}
		}
	}
	for _, name := range []string{
		"-a", "_a", "A", "aB", "a.b", "a b", "a*", "a>", "a/b", `a\b`, "ü", "a\x00", "a\n", "\xff", " a", long + "a",
	} {
		for field, sub := range map[string]messaging.Subscription{
			"Name":          {Name: name},
			"DeadLettersOf": {Name: "a", DeadLettersOf: name},
		} {
			checkInvalid(t, sub, field, "1 to 64 characters of a-z")
		}
	}
	checkInvalid(t, messaging.Subscription{}, "Name", "1 to 64 characters of a-z")
}

// checkInvalid wants sub refused, with the field and what is allowed named.
func checkInvalid(t *testing.T, sub messaging.Subscription, field, allowed string) {
	t.Helper()
	got, err := sub.Normalize()
	if !errors.Is(err, messaging.ErrInvalid) {
		t.Errorf("%+v: %v, want ErrInvalid", sub, err)
		return
	}
	if text := err.Error(); !strings.Contains(text, field) || !strings.Contains(text, allowed) {
		t.Errorf("%+v: %q, want it to name %s and %q", sub, text, field, allowed)
	}
	if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
		t.Errorf("%+v: %q has control characters", sub, err)
	}
	if !cmp.Equal(got, messaging.Subscription{}, compareStart) {
		t.Errorf("%+v: got %+v with an error, want zero", sub, got)
	}
}

// TestNormalizeInvalid holds each field to its range.
func TestNormalizeInvalid(t *testing.T) {
	many := make([]string, messaging.MaxTypes+1)
	for i := range many {
		many[i] = fmt.Sprintf("t%d", i)
	}
	tests := []struct {
		name           string
		sub            messaging.Subscription
		field, allowed string
	}{
		{"too many types", messaging.Subscription{Types: many}, "len(Types) is 65", "at most 64"},
		{"empty type", messaging.Subscription{Types: []string{""}}, "Types", "dot-separated tokens"},
		{"empty token", messaging.Subscription{Types: []string{"a", "a..b"}}, "Types", "dot-separated tokens"},
		{"> not last", messaging.Subscription{Types: []string{"a.>.b"}}, "Types", "a final >"},
		{"> inside a token", messaging.Subscription{Types: []string{"a>"}}, "Types", "a final >"},
		{"* inside a token", messaging.Subscription{Types: []string{"a*.b"}}, "Types", "any one token"},
		{"AckWait", messaging.Subscription{AckWait: -1}, "AckWait is -1ns", "positive, or 0"},
		{"MaxInFlight", messaging.Subscription{MaxInFlight: -1}, "MaxInFlight is -1", "positive, or 0"},
		{"MaxAttempts", messaging.Subscription{MaxAttempts: -1}, "MaxAttempts is -1", "positive, or 0"},
		{"Expires", messaging.Subscription{Expires: -1}, "Expires is -1ns", "positive, or 0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.sub.Name = "billing"
			checkInvalid(t, test.sub, test.field, test.allowed)
			checkInvalid(t, test.sub, `"billing"`, test.allowed)
		})
	}
	if _, err := (messaging.Subscription{Name: "a", Types: many[:messaging.MaxTypes]}).Normalize(); err != nil {
		t.Errorf("64 types: %v, want nil", err)
	}
}

// TestNormalizeStart holds StartAt to times that are not in the future
// [SUB-2], however far.
func TestNormalizeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, at := range []time.Time{now, now.Add(-1), now.Add(-1e6 * time.Hour), time.Unix(0, 0), {}} {
			if _, err := (messaging.Subscription{Name: "a", Start: messaging.StartAt(at)}).Normalize(); err != nil {
				t.Errorf("StartAt(%v): %v, want nil", at, err)
			}
		}
		for _, at := range []time.Time{now.Add(1), now.Add(1e6 * time.Hour), now.AddDate(300, 0, 0), now.AddDate(1000, 0, 0), now.AddDate(7000, 0, 0)} {
			checkInvalid(t, messaging.Subscription{Name: "a", Start: messaging.StartAt(at)}, "Start", "not in the future")
		}
	})
}

// TestConflict holds members to the settings of the first, field by field
// [SUB-4].
func TestConflict(t *testing.T) {
	have := messaging.Subscription{
		Name: "billing", Types: []string{"a", "b"}, AckWait: time.Minute, MaxInFlight: 10, MaxAttempts: 5, Expires: time.Hour,
	}
	tests := []struct {
		name   string
		change func(s *messaging.Subscription)
		want   string // empty: no conflict
	}{
		{"the same", func(s *messaging.Subscription) {}, ""},
		{"Types in another order, twice", func(s *messaging.Subscription) { s.Types = []string{"b", "a", "b"} }, ""},
		{"another Start", func(s *messaging.Subscription) { s.Start = messaging.StartNew() }, ""},
		{"fewer Types", func(s *messaging.Subscription) { s.Types = []string{"a"} }, "Types is [a b], asked for [a]"},
		{"more Types", func(s *messaging.Subscription) { s.Types = []string{"a", "b", "c"} }, "Types is [a b], asked for [a b c]"},
		{"no Types", func(s *messaging.Subscription) { s.Types = nil }, "Types is [a b], asked for []"},
		{"AckWait", func(s *messaging.Subscription) { s.AckWait = time.Second }, "AckWait is 1m0s, asked for 1s"},
		{"AckWait by default", func(s *messaging.Subscription) { s.AckWait = 0 }, "AckWait is 1m0s, asked for 30s"},
		{"MaxInFlight", func(s *messaging.Subscription) { s.MaxInFlight = 1 }, "MaxInFlight is 10, asked for 1"},
		{"MaxAttempts", func(s *messaging.Subscription) { s.MaxAttempts = 0 }, "MaxAttempts is 5, asked for 0"},
		{"Expires", func(s *messaging.Subscription) { s.Expires = 0 }, "Expires is 1h0m0s, asked for 0s"},
	}
	normal, err := have.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			asked := have
			test.change(&asked)
			asked, err := asked.Normalize()
			if err != nil {
				t.Fatal(err)
			}
			err = asked.Conflict(normal)
			if test.want == "" {
				if err != nil {
					t.Errorf("Conflict: %v, want nil", err)
				}
				return
			}
			if !errors.Is(err, messaging.ErrConflict) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `"billing"`) {
				t.Errorf("Conflict: %v, want ErrConflict with %q", err, test.want)
			}
		})
	}
}
