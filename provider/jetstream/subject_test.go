package jetstream

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
)

func TestSubject(t *testing.T) {
	for _, tt := range []struct{ typ, want string }{
		{"order", "p.order"},
		{"order.paid.card", "p.order.paid.card"},
		{"$JS.API.STREAM.DELETE.x", "p.%24JS.API.STREAM.DELETE.x"},
		{"a.*", "p.a.%2A"},
		{"a.>", "p.a.%3E"},
		{"", "p.%"},
		{".", "p.%.%"},
		{"a..b", "p.a.%.b"},
		{"%", "p.%25"},
		{"a b\tc", "p.a%20b%09c"},
		{"é", "p.%C3%A9"},
	} {
		if got := subject("p", tt.typ); got != tt.want {
			t.Errorf("subject(%q) = %q, want %q", tt.typ, got, tt.want)
		}
		if !isSubject(tt.want, "p", tt.typ) || isSubject(tt.want+".x", "p", tt.typ) || isSubject(tt.want, "q", tt.typ) {
			t.Errorf("isSubject does not tell that of type %q from others", tt.typ)
		}
	}
}

// natsMatch is the server's rule, for the test to compare with.
func natsMatch(filter, subject string) bool {
	fs, ss := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, f := range fs {
		if f == ">" {
			return i < len(ss)
		}
		if i >= len(ss) || f != "*" && f != ss[i] {
			return false
		}
	}
	return len(fs) == len(ss)
}

func TestFiltersSelectWhatPatternsMatch(t *testing.T) {
	types := []string{"a", "b", "a.b", "a.b.c", "a.*", "a.>", "", ".", "a.", ".a", "a..b", "A", "é.b", "a b.c", "%", "$a.b"}
	patterns := []string{"a", "a.b", "*", ">", "*.b", "a.*", "a.>", "*.*", "*.*.*", "*.>", "é.*", "a b.c", "%", "$a.b"}
	var sets [][]string
	sets = append(sets, nil)
	for _, p := range patterns {
		sets = append(sets, []string{p})
		for _, q := range patterns {
			if p < q {
				sets = append(sets, []string{p, q})
			}
		}
	}
	sets = append(sets, patterns)
	for _, set := range sets {
		pattern, err := event.ParsePattern(set...)
		if err != nil {
			t.Fatal(err)
		}
		fs := filters("p", set)
		for _, typ := range types {
			s := subject("p", typ)
			got := slices.ContainsFunc(fs, func(f string) bool { return natsMatch(f, s) })
			if want := pattern.Match(typ); got != want {
				t.Errorf("patterns %q, filters %q: type %q selected: %v, want %v", set, fs, typ, got, want)
			}
		}
		for _, f := range fs {
			for _, g := range fs {
				if f != g && covers(f, g) {
					t.Errorf("patterns %q: filter %q covers %q, which a server refuses", set, f, g)
				}
			}
		}
	}
}

func TestFiltersDropWhatIsCovered(t *testing.T) {
	got := filters("p", []string{"order.>", "order.paid", "order.paid.*", "x.*", "*.y"})
	want := []string{"p.order.>", "p.x.*", "p.*.y"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func FuzzSubject(f *testing.F) {
	f.Add("a.b", "a%2Eb")
	f.Add("", "%")
	f.Add("$JS.API", ">")
	f.Fuzz(func(t *testing.T, a, b string) {
		sa, sb := subject("p", a), subject("p", b)
		if (a == b) != (sa == sb) {
			t.Errorf("types %q and %q have the subjects %q and %q", a, b, sa, sb)
		}
		for token := range strings.SplitSeq(sa, ".") {
			if token == "" || strings.ContainsAny(token, " *>$\t\r\n") {
				t.Errorf("type %q: subject %q has the token %q", a, sa, token)
			}
		}
		if !strings.HasPrefix(sa, "p.") {
			t.Errorf("type %q: subject %q is outside the prefix", a, sa)
		}
	})
}

func TestMessageIDTellsSourceFromID(t *testing.T) {
	seen := make(map[string]string)
	for _, id := range [][2]string{{"a", "b"}, {"ab", "a"}, {"a", "ab"}, {"a", "B"}, {"b", "a"}, {"/x", "1"}, {"/x1", "x"}} {
		e, err := event.New(id[0], "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		e.SetID(id[1])
		key := messageID(e)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have the same message id", id, other)
		}
		seen[key] = id[0] + "|" + id[1]
	}
}
