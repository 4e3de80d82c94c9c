package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequirements(t *testing.T) {
	ids := make(map[string]bool)
	for _, r := range Requirements() {
		if ids[r.ID] {
			t.Errorf("CONTRACT.md has %s twice", r.ID)
		}
		ids[r.ID] = true
		if !strings.HasSuffix(r.Text, ".") && !strings.HasSuffix(r.Text, "RET.") {
			t.Errorf("%s does not end like a sentence: %q", r.ID, r.Text)
		}
		if !strings.Contains(contract, r.Text[:20]) {
			t.Errorf("%s is not in CONTRACT.md word by word: %q", r.ID, r.Text)
		}
	}
	// Whatever looks like a requirement was read as one.
	for _, line := range regexp.MustCompile(`(?m)^\s*[-*] *([A-Z]{2,4}-[0-9]+)`).FindAllStringSubmatch(contract, -1) {
		if !ids[line[1]] {
			t.Errorf("CONTRACT.md begins an item with %s, and Requirements does not have it", line[1])
		}
	}
	// And what refers to one refers to one that exists.
	for _, id := range regexp.MustCompile(`\b[A-Z]{3}-[0-9]+\b`).FindAllString(contract, -1) {
		if !ids[id] && id != "UTF-8" {
			t.Errorf("CONTRACT.md refers to %s, which it does not have", id)
		}
	}
	needs := make(map[string]Capability)
	for _, r := range Requirements() {
		if r.Needs != 0 {
			needs[r.ID] = r.Needs
		}
	}
	if diff := cmp.Diff(map[string]Capability{"PUB-11": Durable, "SUB-10": Expires}, needs); diff != "" {
		t.Errorf("capabilities that requirements need (-want +got):\n%s", diff)
	}
}

func TestParseContract(t *testing.T) {
	got := parseContract("# Page\n\n- ABC-1 One\n  two\n    three.\n- not one\n  ABC-9 nor this\n- ABC-22 (CAP `Fenced`) Four.\n\n  after a gap\nABC-3 no item\n")
	want := []Requirement{{ID: "ABC-1", Text: "One two three."}, {ID: "ABC-22", Text: "(CAP `Fenced`) Four.", Needs: Fenced}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parseContract (-want +got):\n%s", diff)
	}
}

func TestCapabilityString(t *testing.T) {
	for c, want := range map[Capability]string{
		0: "0", Durable: "Durable", Expires: "Expires", Durable | Fenced: "Durable|Fenced", Expires | 1<<12: "Expires|0x1000",
	} {
		if got := c.String(); got != want {
			t.Errorf("Capability(%#x).String() = %q, want %q", uint(c), got, want)
		}
	}
}

// Every requirement has a check, or a reason why it has none; and no check is
// of a requirement that does not exist.
func TestChecks(t *testing.T) {
	ids := make(map[string]bool)
	for _, r := range Requirements() {
		ids[r.ID] = true
		switch reason, none := unchecked[r.ID]; {
		case len(checks[r.ID]) == 0 && !none:
			t.Errorf("%s has neither a check nor a reason for having none", r.ID)
		case len(checks[r.ID]) > 0 && none:
			t.Errorf("%s has a check, and a reason for having none: %s", r.ID, reason)
		}
	}
	for _, id := range slices.Concat(slices.Collect(maps.Keys(checks)), slices.Collect(maps.Keys(unchecked))) {
		if !ids[id] {
			t.Errorf("there is a check of %s, or a reason for having none, and no such requirement", id)
		}
	}
	for id, cs := range checks {
		names := make(map[string]bool)
		for _, c := range cs {
			if c.name == "" || c.do == nil || names[c.name] {
				t.Errorf("%s has a check without a name of its own: %+v", id, c)
			}
			names[c.name] = true
		}
	}
}

// uncited are the requirements that no Go comment cites, and why.
var uncited = map[string]string{
	"SEC-4": "a rule that something is not done",
}

var citation = regexp.MustCompile(`\[([A-Z]{3}-[0-9]+(?:,\s+[A-Z]{3}-[0-9]+)*)\]`)

// The comments of the module cite requirements that exist, and each requirement
// is cited where it is promised.
func TestCitations(t *testing.T) {
	ids := make(map[string]bool)
	for _, r := range Requirements() {
		ids[r.ID] = true
	}
	cited := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Logf("not looked at: %v", err) // the compiler's business
			return nil
		}
		counts := !strings.HasSuffix(path, "_test.go") && filepath.Dir(path) != filepath.Join("..", "conformance")
		for _, id := range citations(file) {
			if !ids[id] {
				t.Errorf("%s cites %s, which CONTRACT.md does not have", path, id)
			}
			cited[id] = cited[id] || counts
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range ids {
		switch reason, listed := uncited[id]; {
		case !cited[id] && !listed:
			t.Errorf("no comment outside this package cites %s", id)
		case cited[id] && listed:
			t.Errorf("%s is listed as not cited (%s), and is", id, reason)
		}
	}
}

func citations(file *ast.File) []string {
	var out []string
	for _, group := range file.Comments {
		for _, m := range citation.FindAllStringSubmatch(group.Text(), -1) {
			for id := range strings.SplitSeq(m[1], ",") {
				out = append(out, strings.TrimSpace(id))
			}
		}
	}
	return out
}

// The package hands its imports on to everyone who writes a provider.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			const module = "github.com/catchment-events/catchment/"
			switch {
			case !strings.Contains(name, "."), strings.HasPrefix(name, "github.com/cloudevents/sdk-go/v2/"):
			case strings.HasPrefix(name, module) && !strings.HasPrefix(name, module+"provider/"):
			default:
				t.Errorf("%s imports %s", path, name)
			}
		}
	}
}
