package messaging_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// TestDeadLetter holds the annotations to carrying all of a dead letter
// [DLQ-2].
func TestDeadLetter(t *testing.T) {
	tests := []struct {
		name string
		d    messaging.DeadLetter
	}{
		{"full", messaging.DeadLetter{
			Subscription: "billing", Reason: "no such customer: ü 100%", Attempts: 5, Sequence: 1<<64 - 1,
			Stored: time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC),
			Died:   time.Date(2026, 12, 1, 1, 2, 3, 999999999, time.FixedZone("", -3600)),
		}},
		{"empty", messaging.DeadLetter{Subscription: "billing"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := messaging.DeadLetterFrom(reactor.Info{Annotations: test.d.Annotations()})
			if !ok {
				t.Fatal("DeadLetterFrom found none")
			}
			if diff := cmp.Diff(test.d, got); diff != "" {
				t.Errorf("dead letter (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDeadLetterOfOthers holds DeadLetterFrom to finding none in a delivery
// from the log.
func TestDeadLetterOfOthers(t *testing.T) {
	for _, info := range []reactor.Info{{}, {Annotations: map[string]string{"trace": "1"}}} {
		if d, ok := messaging.DeadLetterFrom(info); ok || d != (messaging.DeadLetter{}) {
			t.Errorf("DeadLetterFrom(%+v) = %+v, %v, want none", info, d, ok)
		}
	}
	if got, ok := messaging.DeadLetterFrom(reactor.Info{Annotations: map[string]string{
		"dead-subscription": "billing", "dead-attempts": "x", "dead-sequence": "-1", "dead-died": "soon",
	}}); !ok || got.Subscription != "billing" || got.Attempts != 0 || got.Sequence != 0 || !got.Died.IsZero() {
		t.Errorf("DeadLetterFrom of garbage = %+v, %v, want what can be read", got, ok)
	}
}

// TestDeadLetterReason holds reasons to valid UTF-8 of 1 KiB without control
// characters [DLQ-2].
func TestDeadLetterReason(t *testing.T) {
	const most = messaging.MaxReason
	a := func(n int) string { return strings.Repeat("a", n) }
	tests := []struct {
		name, reason, want string
	}{
		{"plain", "boom", "boom"},
		{"empty", "", ""},
		{"line breaks", "a\r\nb\tc\x00d", "a  b c d"},
		{"C1 and DEL", "a\u0085b\u007fc\u009fd", "a b c d"},
		{"invalid UTF-8", "a\xffb", "a\uFFFDb"},
		{"a surrogate", "a\xed\xa0\x80b", "a\uFFFDb"},
		{"as long as it may be", a(most), a(most)},
		{"too long", a(most + 1), a(most)},
		{"much too long", a(1 << 20), a(most)},
		{"two bytes at the end", a(most-1) + "ü", a(most - 1)},
		{"two bytes that fit", a(most-2) + "üa", a(most-2) + "ü"},
		{"four bytes at the end", a(most-3) + "🙂", a(most - 3)},
		{"four bytes that fit", a(most-4) + "🙂🙂", a(most-4) + "🙂"},
		{"invalid at the end", a(most-1) + "\xff", a(most - 1)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, _ := messaging.DeadLetterFrom(reactor.Info{Annotations: messaging.DeadLetter{Reason: test.reason}.Annotations()})
			if got.Reason != test.want {
				t.Errorf("reason is %.40q…%d, want %.40q…%d", got.Reason, len(got.Reason), test.want, len(test.want))
			}
		})
	}
}

// FuzzDeadLetterReason holds every reason to its bounds.
func FuzzDeadLetterReason(f *testing.F) {
	f.Add("boom\r\n")
	f.Add(strings.Repeat("\xff\u0085🙂", 500))
	f.Add(strings.Repeat("\xf0\x9f\x99", 2000))
	f.Fuzz(func(t *testing.T, reason string) {
		for _, got := range (messaging.DeadLetter{Reason: reason}).Annotations() {
			if len(got) > messaging.MaxReason || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
				t.Errorf("an annotation of %q is %q", reason, got)
			}
		}
	})
}
