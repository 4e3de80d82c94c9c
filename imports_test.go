// Package catchment_test holds what is said of the module as a whole.
package catchment_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/catchment-events/catchment"

// imports returns the packages that a package of the module links, beyond the
// standard library.
func imports(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./"+pkg).CombinedOutput()
	if err != nil {
		t.Fatalf("go list -deps %s: %v\n%s", pkg, err, out)
	}
	return strings.Fields(string(out))
}

// TestImports holds the core to the standard library and the CloudEvents SDK,
// with what that needs itself, and dependencies to one direction.
func TestImports(t *testing.T) {
	const sdk = "github.com/cloudevents/sdk-go/v2/"
	ofSDK := []string{sdk, "github.com/json-iterator/go", "github.com/modern-go/"}
	for _, tt := range []struct {
		pkg     string
		allowed []string // prefixes
	}{
		{"reactor", nil},
		{"event", ofSDK},
		{"messaging", append([]string{module + "/event", module + "/reactor", module + "/messaging/internal"}, ofSDK...)},
		{"messaging/outbox", append([]string{module + "/event", module + "/reactor", module + "/messaging"}, ofSDK...)},
		{"messaging/inbox", append([]string{module + "/event", module + "/reactor", module + "/messaging"}, ofSDK...)},
		{"messaging/filter", append([]string{module + "/event", module + "/reactor", module + "/messaging"}, ofSDK...)},
		{"messaging/filter/cesql", append([]string{module + "/event", module + "/reactor", module + "/messaging",
			"github.com/cloudevents/sdk-go/sql/v2/gen", "github.com/antlr/"}, ofSDK...)},
		{"provider/internal/local", nil},
		{"provider/memory", append([]string{module + "/event", module + "/reactor", module + "/messaging", module + "/provider/internal/local"}, ofSDK...)},
		{"conformance", append([]string{module + "/event", module + "/reactor", module + "/messaging"}, ofSDK...)},
	} {
		for _, imported := range imports(t, tt.pkg) {
			if imported == module+"/"+tt.pkg {
				continue
			}
			if !slices.ContainsFunc(tt.allowed, func(p string) bool { return strings.HasPrefix(imported, p) }) {
				t.Errorf("%s links %s, which only a provider may", tt.pkg, imported)
			}
		}
	}
	for _, imported := range imports(t, "provider/jetstream") {
		if strings.HasPrefix(imported, "github.com/nats-io/nats-server/") {
			t.Errorf("provider/jetstream links a server: %s", imported)
		}
	}
}

// TestParserStaysApart holds the parser of CloudEvents SQL to the one package
// that needs it.
func TestParserStaysApart(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "work").CombinedOutput()
	if err != nil {
		t.Fatalf("go list work: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		pkg, imported, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pkg == module+"/messaging/filter/cesql" {
			continue
		}
		for _, path := range strings.Fields(imported) {
			if strings.HasPrefix(path, "github.com/antlr/") || strings.HasPrefix(path, "github.com/cloudevents/sdk-go/sql/") {
				t.Errorf("%s imports %s, which only messaging/filter/cesql may", pkg, path)
			}
		}
	}
}
