package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
)

// reportVariable names a directory to write reports to.
const reportVariable = "CATCHMENT_CONFORMANCE_REPORT"

// A report is what a Run found. It says nothing of the machine, and nothing
// that differs from run to run but times, which are in whole seconds.
type report struct {
	Provider     string            `json:"provider"` // the import path of the broker's package
	Version      string            `json:"version"`  // of its module, as the build knows it
	Capabilities []string          `json:"capabilities"`
	Deviations   map[string]string `json:"deviations"`
	Requirements []reported        `json:"requirements"`

	mu sync.Mutex
}

// reported is the result of a requirement, or of one check of it.
type reported struct {
	Name    string     `json:"name"`
	Result  string     `json:"result"`           // passed, failed, deviates, skipped, not run
	Reason  string     `json:"reason,omitempty"` // for a skip
	Seconds int        `json:"seconds,omitempty"`
	Checks  []reported `json:"checks,omitempty"`

	took time.Duration
}

func newReport(h Harness) *report {
	r := &report{Capabilities: []string{}, Deviations: map[string]string{}}
	for c := Capability(1); c != 0 && c <= h.Capabilities; c <<= 1 {
		if h.Capabilities.Has(c) {
			r.Capabilities = append(r.Capabilities, c.String())
		}
	}
	for id, reason := range h.Deviations {
		r.Deviations[id] = reason
	}
	for _, req := range requirements {
		one := reported{Name: req.ID, Result: "not run"}
		for _, c := range checks[req.ID] {
			one.Checks = append(one.Checks, reported{Name: c.name, Result: "not run"})
		}
		if len(one.Checks) == 0 {
			one.Result, one.Reason = "skipped", "not checked here: "+unchecked[req.ID]
		}
		r.Requirements = append(r.Requirements, one)
	}
	histories := reported{Name: historyPart, Result: "not run"}
	for _, j := range judges {
		histories.Checks = append(histories.Checks, reported{Name: j.name, Result: "not run"})
	}
	r.Requirements = append(r.Requirements, histories)
	return r
}

// opened notes the provider.
func (r *report) opened(b Broker) {
	typ := reflect.TypeOf(b)
	if typ == nil {
		return
	}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Provider = strings.TrimSuffix(typ.PkgPath(), "_test")
	r.Version = version(r.Provider)
}

// version is that of the module that a package is of.
func version(pkg string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)"
	}
	for _, m := range info.Deps {
		if pkg == m.Path || strings.HasPrefix(pkg, m.Path+"/") {
			return m.Version
		}
	}
	return cmp.Or(info.Main.Version, "(devel)")
}

// note keeps what a check found.
func (r *report) note(id, name, result, reason string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.Requirements {
		for j := range r.Requirements[i].Checks {
			if c := &r.Requirements[i].Checks[j]; r.Requirements[i].Name == id && c.Name == name {
				c.Result, c.Reason, c.took = result, reason, took
			}
		}
	}
}

// weight says which of two results is that of both.
var weight = map[string]int{"not run": 0, "skipped": 1, "passed": 2, "deviates": 3, "failed": 4}

// sum makes the results of requirements from those of their checks.
func (r *report) sum() {
	for i := range r.Requirements {
		req := &r.Requirements[i]
		for j := range req.Checks {
			c := &req.Checks[j]
			c.Seconds = int(c.took.Round(time.Second) / time.Second)
			req.took += c.took
			if weight[c.Result] > weight[req.Result] {
				req.Result, req.Reason = c.Result, c.Reason
			}
		}
		req.Seconds = int(req.took.Round(time.Second) / time.Second)
	}
}

// markdown is the report for people.
func (r *report) markdown() string {
	var out strings.Builder
	capabilities := cmp.Or(strings.Join(r.Capabilities, ", "), "none")
	fmt.Fprintf(&out, "# Conformance of %s\n\nVersion: %s  \nCapabilities: %s\n\n", r.Provider, r.Version, capabilities)
	out.WriteString("| requirement | result | checks | time | remarks |\n|---|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, req := range r.Requirements {
		counts := make(map[string]int)
		var failed, skipped []string
		for _, c := range req.Checks {
			counts[c.Result]++
			switch c.Result {
			case "failed", "deviates":
				failed = append(failed, c.Name)
			case "skipped":
				skipped = append(skipped, c.Name+": "+c.Reason)
			}
		}
		var remarks []string
		if reason, ok := r.Deviations[req.Name]; ok {
			remarks = append(remarks, "deviation: "+reason)
		}
		if len(failed) > 0 {
			remarks = append(remarks, "fails: "+strings.Join(failed, ", "))
		}
		if len(skipped) > 0 {
			remarks = append(remarks, "skipped: "+strings.Join(skipped, "; "))
		} else if len(req.Checks) == 0 {
			remarks = append(remarks, req.Reason)
		}
		took := "< 1 s"
		if req.Seconds > 0 {
			took = fmt.Sprintf("%d s", req.Seconds)
		}
		fmt.Fprintf(&out, "| %s | %s | %d of %d passed | %s | %s |\n",
			req.Name, req.Result, counts["passed"], len(req.Checks), took, cell.Replace(strings.Join(remarks, ". ")))
	}
	return out.String()
}

var unsafeInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// names are the files to write, without extension.
func (r *report) names(t testing.TB, h Harness) []string {
	var out []string
	if h.Report != "" {
		out = append(out, h.Report)
	}
	if dir := os.Getenv(reportVariable); dir != "" {
		name := cmp.Or(path.Base(r.Provider), "provider")
		if test := strings.TrimPrefix(t.Name(), "TestConformance"); test != "" {
			name += "-" + test
		}
		out = append(out, filepath.Join(dir, unsafeInNames.ReplaceAllString(name, "-")))
	}
	return out
}

// write writes the report to where it was asked for.
func (r *report) write(t testing.TB, h Harness) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.names(t, h)
	if len(names) == 0 {
		return nil
	}
	r.sum()
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.WriteFile(name+".json", append(raw, '\n'), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(name+".md", []byte(r.markdown()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
