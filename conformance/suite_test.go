package conformance

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// subprocess is what TestSubprocess does, by name, in a test binary of its
// own: a test of a suite that fails cannot be a test that passes.
var subprocess = map[string]func(t *testing.T){
	"fault":        func(t *testing.T) { Run(t, faultyHarness(faultNamed("drops acks"))) },
	"deviation":    func(t *testing.T) { runDeviating(t, "drops acks", "ACK-1") },
	"no deviation": func(t *testing.T) { runDeviating(t, "drops acks", "PUB-9") },
	"bare": func(t *testing.T) {
		h := memoryHarness()
		Run(t, Harness{Open: h.Open, Bubble: true, Capabilities: h.Capabilities})
	},
	"no such requirement": func(t *testing.T) {
		h := memoryHarness()
		h.Deviations = map[string]string{"ACK-99": "a slip"}
		Run(t, h)
	},
	"durable without restart": func(t *testing.T) {
		h := memoryHarness()
		h.Capabilities |= Durable
		Run(t, h)
	},
	"open fails": func(t *testing.T) {
		h := memoryHarness()
		h.Open = func(t *testing.T) Broker { t.Fatal("no broker today"); return nil }
		Run(t, h)
	},
}

func faultNamed(name string) fault {
	for _, f := range allFaults() {
		if f.name == name {
			return f
		}
	}
	panic("no fault " + name)
}

func runDeviating(t *testing.T, fault, id string) {
	h := faultyHarness(faultNamed(fault))
	h.Deviations = map[string]string{id: "for a test"}
	Run(t, h)
}

const subprocessVariable = "CONFORMANCE_SUBPROCESS"

func TestSubprocess(t *testing.T) {
	name := os.Getenv(subprocessVariable)
	if name == "" {
		t.Skip("runs for TestRun")
	}
	subprocess[name](t)
}

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		has, hasNot []string
		passes      bool
	}{
		"fault": {
			has: []string{
				"--- FAIL: TestSubprocess/ACK-1/not_again",
				": ACK-1\n After Ack returned nil, no Receive begun later on the subscription returns that stored event.",
				"arrived 1s later: nothing should within 2s",
				"--- PASS: TestSubprocess/PUB-9",
			},
		},
		"deviation": {
			has:    []string{"--- PASS: TestSubprocess/ACK-1", "deviates, as declared (for a test): after ", "--- FAIL: TestSubprocess/ACK-6"},
			hasNot: []string{"FAIL: TestSubprocess/ACK-1 "},
		},
		"no deviation": {
			has: []string{"--- FAIL: TestSubprocess/PUB-9 ", "is listed in Deviations (for a test), but nothing failed"},
		},
		"bare": {
			has: []string{
				"the harness has no Inject", "the harness has no OpenFull", "the harness does not declare Durable",
				"the harness has no OpenDiscarding", "the harness has no OpenDeadFull",
				"not checked here: " + unchecked["SEC-4"], "--- SKIP: TestSubprocess/SEC-4",
			},
		},
		"no such requirement":     {has: []string{`the field Deviations names "ACK-99"`}},
		"durable without restart": {has: []string{"the capability Durable and the field Restart go together"}},
		"open fails":              {has: []string{"no broker today"}, hasNot: []string{"did not end"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSubprocess$", "-test.v")
			cmd.Env = append(os.Environ(), subprocessVariable+"="+name)
			raw, err := cmd.CombinedOutput()
			out := regexp.MustCompile(` +`).ReplaceAllString(string(raw), " ")
			if passed := err == nil; passed && name != "bare" {
				t.Errorf("the suite passed")
			}
			for _, want := range c.has {
				if !strings.Contains(out, want) {
					t.Errorf("the output does not have %q", want)
				}
			}
			for _, not := range c.hasNot {
				if strings.Contains(out, not) {
					t.Errorf("the output has %q", not)
				}
			}
			if t.Failed() {
				t.Logf("%v:\n%s", err, raw)
			}
		})
	}
}

// stuck is a broker that waits for a mutex that it holds: in a bubble time
// stands still then, and there is nothing to wake up from.
type stuck struct {
	Broker
	mu sync.Mutex
}

func (s *stuck) Publish(context.Context, ...event.Event) error {
	s.mu.Lock()
	s.mu.Lock()
	return nil
}

func TestHang(t *testing.T) {
	for _, bubble := range []bool{true, false} {
		h := memoryHarness()
		h.Bubble = bubble
		h.Open = func(t *testing.T) Broker { return &stuck{Broker: memory.New(nil)} }
		s := newSuite(h)
		s.hang = 100 * time.Millisecond
		err := s.check(t, check{name: "hangs", do: pub1Batch})
		if err == nil || !strings.Contains(err.Error(), "in Publish of 300 events, begun ") || !strings.Contains(err.Error(), "Mutex") {
			t.Errorf("with Bubble %v a check of a broker that hangs found: %.500v", bubble, err)
		}
	}
}

// Without a bubble a goroutine that is left is found by its label.
func TestLeak(t *testing.T) {
	h := faultyHarness(faultNamed("leaves a goroutine behind"))
	h.Bubble = false
	h.AckWait = 20 * time.Millisecond
	err := newSuite(h).check(t, checks["CLS-3"][0])
	if err == nil || !strings.Contains(err.Error(), "goroutines are left:\n") {
		t.Errorf("found: %v", err)
	}
}

func TestFake(t *testing.T) {
	h := memoryHarness()
	h.Open = func(*testing.T) Broker { return newFake() }
	s := newSuite(h)
	for _, id := range []string{"PUB-1", "SUB-6", "RCV-2", "RCV-3", "RCV-4", "ACK-1", "ACK-2", "ACK-3", "ACK-5", "ACK-6", "ACK-7", "ACK-8", "ACK-9", "CLS-2", "CLS-3"} {
		for _, c := range checks[id] {
			if s.lacks(c) != "" || c.name == "strict_order_and_death" { // dead letters it drops
				continue
			}
			err := s.check(t, c)
			if _, nothing := errors.AsType[skipped](err); err != nil && !nothing {
				t.Errorf("%s/%s: %v", id, c.name, err)
			}
		}
	}
}

// A check sees to it that a provider's own error reaches who asks for it.
func TestFailure(t *testing.T) {
	h := memoryHarness()
	s := newSuite(h)
	err := s.check(t, check{name: "fails", do: func(e *env) {
		b := e.open()
		e.closing(b)
		e.publish(b, e.event("a"))
	}})
	if want := "after 0s: Publish of 1 events: " + messaging.ErrClosed.Error(); err == nil || err.Error() != want {
		t.Errorf("found %v, want %s", err, want)
	}
	if err := s.check(t, check{name: "panics", do: func(e *env) { var d *messaging.Delivery; d.Value.ID() }}); err == nil || !strings.HasPrefix(err.Error(), "panic ") {
		t.Errorf("found %v", err)
	}
}
