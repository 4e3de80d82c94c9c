package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	got := table{{"", "a|b"}, {"x", "1"}}.String()
	want := "|  | a\\|b |\n|---|---|\n| x | 1 |\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRates(t *testing.T) {
	for rate, want := range map[float64]string{0: "0 /s", 74.26: "74.3 /s", 999: "999 /s", 1234: "1.23 k/s", 141_400: "141 k/s", 15_310_000: "15.3 M/s"} {
		if got := perSecond(rate); got != want {
			t.Errorf("perSecond(%v) = %q, want %q", rate, got, want)
		}
	}
	if got := micros(123_456 * time.Nanosecond); got != "123" {
		t.Errorf("micros: %q", got)
	}
}

func TestMarkdown(t *testing.T) {
	got := fixed().markdown(options{rounds: 3}, time.Minute)
	for _, want := range []string{
		"medians of 3 rounds",
		"| catchment memory | 2 M/s, 10 |",
		"| Watermill GoChannel | 1 M/s (0.50), 10 |",
		"2.5 / 90 / 90 µs |",
		"| memory: stream, against Watermill GoChannel in order | ≥ 5 × | 2 × | 2 × | no |",
		"| memory: stream, allocations an event | ≤ 12 | 10 |  | yes |",
		"| catchment memory | events stored | 1 | 100 | 1µs | 1.35µs | 1.50 |",
		"| Go CDK mempubsub | acks with a deadline;",
		"100 events stored against 1 | ≤ 1.2 × | 1.5 × |  | no |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
	if host, err := os.Hostname(); err == nil && len(host) > 3 && strings.Contains(got, host) {
		t.Errorf("the report names the machine:\n%s", got)
	}
}

func TestWriteTable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.md")
	write := func(report, want string) {
		t.Helper()
		if err := writeTable(name, report); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	write("new\n", "new\n")
	write("other\n", "other\n")
	page := "above\n" + tableBegin + "\nold\n" + tableEnd + "\nbelow\n"
	if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, report := range []string{"1\n", "2\n"} {
		write(report, "above\n"+tableBegin+"\n"+report+tableEnd+"\nbelow\n")
	}
}

func TestTargetsOfNothing(t *testing.T) {
	for _, g := range newResults().targets() {
		if g.known || g.holds {
			t.Errorf("%s: %+v", g.what, g)
		}
	}
}
