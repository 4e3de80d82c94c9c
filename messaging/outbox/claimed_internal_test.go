package outbox

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRanges(t *testing.T) {
	for _, tt := range []struct {
		list []int64
		text string
	}{
		{nil, ""},
		{[]int64{7}, "7"},
		{[]int64{3, 1, 2, 9}, "1-3 9"},
		{[]int64{1, 3, 4}, "1 3-4"},
	} {
		if got := formatRanges(slices.Clone(tt.list)); got != tt.text {
			t.Errorf("formatRanges(%v) = %q, want %q", tt.list, got, tt.text)
		}
	}
	for _, text := range []string{"a", "1-", "-1", "1-b", "1,2", "1-9000000000000000000"} {
		if list, err := parseRanges(text); err == nil {
			t.Errorf("parseRanges(%q) = %v, want an error", text, list)
		}
	}
}

func TestRangesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfDistinct(rapid.Int64Range(1, 60), rapid.ID[int64]).Draw(t, "list")
		got, err := parseRanges(formatRanges(slices.Clone(want)))
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
