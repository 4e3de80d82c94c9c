package event_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/catchment-events/catchment/event"
)

func mustPattern(tb testing.TB, patterns ...string) event.Pattern {
	tb.Helper()
	p, err := event.ParsePattern(patterns...)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestPattern(t *testing.T) {
	for _, test := range []struct {
		patterns string // separated by spaces
		match    []string
		others   []string
	}{
		{"", []string{"", "order", "order.created", "a..b", ">"}, nil},
		{"order", []string{"order"}, []string{"", "order.created", "orders", "Order", "order.", ".order", "ord"}},
		{"order.*", []string{"order.created", "order.", "order.*", "order.>"}, []string{"order", "order.a.b", "orders.a"}},
		{"*", []string{"order", "", "*", ">", "*a"}, []string{"a.b", "."}},
		{"*.created", []string{"order.created", ".created"}, []string{"created", "order.deleted", "a.b.created"}},
		{"a.*.c", []string{"a.b.c", "a..c"}, []string{"a.c", "a.b.b.c", "a.b.c.d"}},
		{">", []string{"a", "a.b", "", "..", ">"}, nil},
		{"order.>", []string{"order.a", "order.a.b", "order."}, []string{"order", "orders.a", ""}},
		{"*.>", []string{"a.b", "a.b.c", "."}, []string{"a", ""}},
		{"a.b a.*.c *.*", []string{"a.b", "a.x.c", "x.y"}, []string{"a", "a.x.d", "x.y.z"}},
		{"a.b.c *.b.d", []string{"a.b.c", "a.b.d", "x.b.d"}, []string{"x.b.c"}},
		{"a.> a.b", []string{"a.b", "a.c.d"}, []string{"a"}},
		{"*.*.c a.b.> ", []string{"a.b.x", "a.b.c", "x.y.c"}, []string{"a.b", "a.x.x"}},
		{"é.日本", []string{"é.日本"}, []string{"é", "e.日本"}},
	} {
		p := mustPattern(t, strings.Fields(test.patterns)...)
		for _, typ := range test.match {
			if !p.Match(typ) {
				t.Errorf("%q does not match %q", test.patterns, typ)
			}
		}
		for _, typ := range test.others {
			if p.Match(typ) {
				t.Errorf("%q matches %q", test.patterns, typ)
			}
		}
	}
	if !(event.Pattern{}).Match("any.type") {
		t.Error("the zero Pattern does not match every type")
	}
}

func TestParsePatternRefuses(t *testing.T) {
	for pattern, want := range map[string]string{
		"":        "empty token",
		".":       "empty token",
		"a.":      "empty token",
		".a":      "empty token",
		"a..b":    "empty token",
		">.a":     "not last",
		"a.>.b":   "not last",
		">.":      "not last",
		"a*":      "longer token",
		"*a.b":    "longer token",
		"**":      "longer token",
		"a.b>":    "longer token",
		"a.>>":    "longer token",
		"order*c": "longer token",
	} {
		_, err := event.ParsePattern("good.>", pattern)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", pattern)) {
			t.Errorf("%q: error is %v", pattern, err)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	p := manyPatterns(t)
	if n := testing.AllocsPerRun(100, func() { p.Match("com.example.t63.s.created"); p.Match("x.y.z") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// manyPatterns returns a Pattern of 64 patterns, among them those that make a
// matcher turn back most.
func manyPatterns(tb testing.TB) event.Pattern {
	var patterns []string
	for i := range 16 {
		patterns = append(patterns,
			fmt.Sprintf("com.example.t%d", 48+i),
			fmt.Sprintf("com.*.t%d.*.created", 48+i),
			fmt.Sprintf("*.*.*.s%d.created", i),
			fmt.Sprintf("org.t%d.>", i))
	}
	return mustPattern(tb, patterns...)
}

// FuzzPattern compares with a regular expression for each pattern.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"order.*", "order.created"}, {"a.> b.*.c", "b.x.c"}, {"", ""}, {"*", "."}, {"a..b >", "a..b"},
		{"*.*.c a.b.> a.*", "a.b"}, {"\xff.>", "\xff.\xff"}, {">.a", "x"}, {"a.b.*.d a.*.c.e *.b.c.f", "a.b.c.f"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, patterns, typ string) {
		list := strings.Split(patterns, " ")
		valid, want := true, false
		for _, pattern := range list {
			tokens := strings.Split(pattern, ".")
			expression := "^"
			for i, token := range tokens {
				if i > 0 {
					expression += `\.`
				}
				switch {
				case token == "*":
					expression += `[^.]*`
				case token == ">" && i == len(tokens)-1:
					expression += `.*`
				case token == "" || strings.ContainsAny(token, "*>"):
					valid = false
				default:
					expression += regexp.QuoteMeta(hex(token))
				}
			}
			want = want || valid && regexp.MustCompile("(?s)"+expression+"$").MatchString(hexType(typ))
		}
		p, err := event.ParsePattern(list...)
		if (err == nil) != valid {
			t.Fatalf("%q: error is %v, want valid to be %v", list, err, valid)
		}
		if err == nil && p.Match(typ) != want {
			t.Errorf("%q matches %q: %v, want %v", list, typ, !want, want)
		}
	})
}

// Package regexp works on UTF-8 only, so tokens are compared in hexadecimal.

func hex(token string) string { return fmt.Sprintf("%x", token) }

func hexType(typ string) string {
	tokens := strings.Split(typ, ".")
	for i := range tokens {
		tokens[i] = hex(tokens[i])
	}
	return strings.Join(tokens, ".")
}
