package conformance

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// contract is the page that requirements are read from, so that it and the
// suite cannot differ.
//
//go:embed CONTRACT.md
var contract string

// A Requirement is one numbered promise of the contract.
type Requirement struct {
	ID   string // such as PUB-1; never renumbered or reused
	Text string // the promise as CONTRACT.md words it, on one line
	// Needs is the capability without which the whole requirement does not
	// apply; 0: it always does.
	Needs Capability
}

// Requirements returns the requirements of the contract in its order.
func Requirements() []Requirement {
	out := make([]Requirement, len(requirements))
	copy(out, requirements)
	return out
}

var requirements = parseContract(contract)

var (
	requirementLine = regexp.MustCompile(`^- ([A-Z]{3}-[0-9]+) (.*)$`)
	leadingCap      = regexp.MustCompile("^\\(CAP `([A-Za-z]+)`\\)")
)

// parseContract reads the list items that start with an ID. A requirement goes
// on over the lines that are indented below it.
func parseContract(page string) []Requirement {
	var out []Requirement
	open := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if m := requirementLine.FindStringSubmatch(line); m != nil {
			out = append(out, Requirement{ID: m[1], Text: m[2]})
			open = true
			continue
		}
		more, indented := strings.CutPrefix(line, "  ")
		if open = open && indented; open {
			out[len(out)-1].Text += " " + strings.TrimSpace(more)
		}
	}
	for i := range out {
		if m := leadingCap.FindStringSubmatch(out[i].Text); m != nil {
			out[i].Needs = capabilityNamed(m[1])
		}
	}
	return out
}

// Capability is a set of capabilities: promises that a provider may make
// beyond the rest of the contract. One that it declares is tested; one that it
// does not, and that can be asked for, must be refused with
// [errors.ErrUnsupported] [CAP-1].
type Capability uint

// The capabilities.
const (
	Durable        Capability = 1 << iota // what is stored outlives the processes [PUB-11, SUB-9]
	Synced                                // and the loss of power [PUB-11]
	OrderedPublish                        // a failed Publish leaves no event out of order [PUB-2]
	Positions                             // StartAt and StartFrom [SUB-2]
	ExactAttempts                         // a process that died adds no attempts [RCV-2]
	ConfirmedAck                          // no crash undoes an ack [ACK-1]
	Fenced                                // a late settle never lands [ACK-7]
	Expires                               // Subscription.Expires [SUB-10]
)

var capabilityNames = []string{
	"Durable", "Synced", "OrderedPublish", "Positions", "ExactAttempts", "ConfirmedAck", "Fenced", "Expires",
}

// Has reports whether c holds all of want.
func (c Capability) Has(want Capability) bool { return c&want == want }

// String returns the names in c with | between them, as Go would spell it.
func (c Capability) String() string {
	var names []string
	for i, name := range capabilityNames {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if rest := c >> len(capabilityNames); rest != 0 {
		names = append(names, fmt.Sprintf("%#x", uint(rest)<<len(capabilityNames)))
	}
	if names == nil {
		return "0"
	}
	return strings.Join(names, "|")
}

// capabilityNamed panics on a name that is none: the contract has a typing
// error.
func capabilityNamed(name string) Capability {
	i := slices.Index(capabilityNames, name)
	if i < 0 {
		panic(fmt.Sprintf("conformance: CONTRACT.md names the capability %q, which does not exist", name))
	}
	return 1 << i
}
