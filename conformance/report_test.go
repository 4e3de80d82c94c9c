package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// untimed leaves out of a report how long things took, which two runs may round
// differently, and the commas that depend on it.
func untimed(report string) string {
	report = regexp.MustCompile(`(?m)^\t*"seconds": \d+,?\n`).ReplaceAllString(report, "")
	report = regexp.MustCompile(`\| (< 1|\d+) s \|`).ReplaceAllString(report, "| |")
	return strings.ReplaceAll(report, ",", "")
}

func TestReport(t *testing.T) {
	dir, env := t.TempDir(), t.TempDir()
	t.Setenv(reportVariable, env)
	h := memoryHarness()
	h.Report = filepath.Join(dir, "mine")
	var runs [2][2]string
	for i := range runs {
		t.Run("TestConformance", func(t *testing.T) { Run(t, h) })
		for j, ext := range []string{".json", ".md"} {
			raw, err := os.ReadFile(h.Report + ext)
			if err != nil {
				t.Fatal(err)
			}
			runs[i][j] = string(raw)
		}
	}
	for j := range runs[0] {
		if diff := cmp.Diff(untimed(runs[0][j]), untimed(runs[1][j])); diff != "" {
			t.Errorf("the second report differs from the first:\n%s", diff)
		}
	}
	var got struct {
		Provider, Version string
		Capabilities      []string
		Requirements      []reported
	}
	if err := json.Unmarshal([]byte(runs[0][0]), &got); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(got.Provider, "provider/memory") || got.Version == "" || len(got.Capabilities) != 6 {
		t.Errorf("the report is of %+v", got)
	}
	results := make(map[string]string)
	for _, r := range got.Requirements {
		results[r.Name] = r.Result
	}
	if len(results) != len(requirements)+1 || results[historyPart] != "passed" || results["ACK-1"] != "passed" || results["PUB-11"] != "skipped" || results["SEC-4"] != "skipped" {
		t.Errorf("results are %v", results)
	}
	if want := "| ACK-2 | passed | 3 of 3 passed | |"; !strings.Contains(untimed(runs[0][1]), want) {
		t.Errorf("the table has no %q:\n%s", want, runs[0][1])
	}
	if host, _ := os.Hostname(); host != "" && strings.Contains(runs[0][0]+runs[0][1], host) || strings.Contains(runs[0][0], dir) {
		t.Errorf("the report names the machine")
	}
	byEnv, err := os.ReadFile(filepath.Join(env, "memory-TestReport-TestConformance.json"))
	if err != nil || untimed(string(byEnv)) != untimed(runs[0][0]) {
		files, _ := filepath.Glob(filepath.Join(env, "*"))
		t.Errorf("%s names %v: %v", reportVariable, files, err)
	}
}

// What fails and what deviates is in the report.
func TestReportOfAFailure(t *testing.T) {
	h := faultyHarness(faultNamed("drops acks"))
	h.Deviations = map[string]string{"ACK-1": "for | a test"}
	r := newReport(h)
	r.note("ACK-1", "not_again", "deviates", "", 0)
	r.note("ACK-6", "twice", "failed", "", 0)
	r.note("ACK-6", "failed", "passed", "", 0)
	r.sum()
	for _, want := range []string{
		`| ACK-1 | deviates | 0 of 4 passed | < 1 s | deviation: for \| a test. fails: not_again |`,
		"| ACK-6 | failed | 1 of 3 passed | < 1 s | fails: twice |",
		"| PUB-1 | not run |",
	} {
		if !strings.Contains(r.markdown(), want) {
			t.Errorf("the table has no %q:\n%s", want, r.markdown())
		}
	}
}

// TestReportsAreCurrent holds the reports that the README links to the checks
// that there are: CONTRIBUTING says how they are made.
func TestReportsAreCurrent(t *testing.T) {
	files, err := filepath.Glob("reports/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no reports: %v", err)
	}
	names := func(r *report) (names []string) {
		for _, req := range r.Requirements {
			for _, c := range req.Checks {
				names = append(names, req.Name+"/"+c.Name)
			}
		}
		return names
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r report
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if diff := cmp.Diff(names(newReport(Harness{})), names(&r)); diff != "" {
			t.Errorf("%s has other checks than the suite (-want +got):\n%s", file, diff)
		}
		for _, req := range r.Requirements {
			if req.Result != "passed" && req.Result != "skipped" {
				t.Errorf("%s: %s is %s", file, req.Name, req.Result)
			}
		}
	}
}
