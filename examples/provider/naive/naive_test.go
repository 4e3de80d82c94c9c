package naive_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/examples/provider/naive"
)

// TestConformance fails, and so runs only if it is asked to.
func TestConformance(t *testing.T) {
	if os.Getenv("NAIVE") == "" {
		t.Skip("fails: set NAIVE=1 to see how")
	}
	conformance.Run(t, conformance.Harness{
		Open: func(t *testing.T) conformance.Broker {
			b := naive.New()
			t.Cleanup(func() { b.Close() })
			return b
		},
		Bubble: true,
	})
}

const readme = "../README.md"

// blocks returns the README's blocks of a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, part := range strings.Split(string(text), "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		out = append(out, block)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no blocks of %s", readme, language)
	}
	return out
}

// flat returns s with each run of white space as one space.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

var (
	failure = regexp.MustCompile(`--- FAIL: TestConformance/([A-Z]+-\d+)/(\w+)`)
	names   = regexp.MustCompile(`\bc[0-9a-z]{5,}[.-]\d+\b`) // of events and subscriptions, new in each run
)

// TestReadme holds the README to what the suite says of this package: each
// check that it quotes still fails, in the words that it quotes.
func TestReadme(t *testing.T) {
	quotes := strings.Join(blocks(t, "text"), "")
	var ids, checks []string
	for _, m := range failure.FindAllStringSubmatch(quotes, -1) {
		ids, checks = append(ids, m[1]), append(checks, m[2])
	}
	pattern := "^TestConformance$/^(" + strings.Join(ids, "|") + ")$/^(" + strings.Join(checks, "|") + ")$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern)
	cmd.Env = append(os.Environ(), "NAIVE=1")
	raw, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("the suite passes")
	}
	out := names.ReplaceAllString(string(raw), "NAME")
	for line := range strings.Lines(names.ReplaceAllString(quotes, "NAME")) {
		for part := range strings.SplitSeq(line, "[…]") {
			if part = strings.TrimSpace(part); !strings.Contains(out, part) {
				t.Errorf("%s quotes what the suite does not say: %s", readme, part)
			}
		}
	}
	if t.Failed() {
		t.Logf("%v:\n%s", err, raw)
	}
}

// TestReadmeCode holds the README's code to the files that it is from.
func TestReadmeCode(t *testing.T) {
	var code string
	for _, name := range []string{"naive.go", "naive_test.go", "../provider.go", "../subscription.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code += flat(string(text)) + "\n"
	}
	for _, block := range blocks(t, "go") {
		if !strings.Contains(code, flat(block)) {
			t.Errorf("%s has code that is in no file here:\n%s", readme, block)
		}
	}
}
