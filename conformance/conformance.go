// Package conformance is the contract between services and message brokers,
// and the suite that holds a provider to it.
//
// # Usage
//
// A provider has one test that hands the suite a way to open its broker:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			Open: func(t *testing.T) conformance.Broker {
//				b := example.New(nil)
//				t.Cleanup(func() { b.Close() })
//				return b
//			},
//			Capabilities: conformance.Positions | conformance.Expires,
//			Bubble:       true,
//		})
//	}
//
// There is one subtest for each requirement of CONTRACT.md, named by its ID. A
// failure prints three lines: the ID, the sentence of the contract, and what
// happened. A subtest that is skipped says what it lacks.
//
// # Expected behaviour
//
// A check that fails has found a fault, or a sentence of the contract that can
// be read in two ways; both deserve a report. The reverse does not hold: some
// faults show up rarely, so run the suite with -race, and with -count.
//
// Time is measured by one rule in two ways. In a bubble it is exact: nothing
// a nanosecond before a deadline, and everything at it. On a server, bounds are
// multiples of Harness.AckWait, and the absence of an event is shown by another
// one that arrives first, or by waiting.
//
// A check that hangs is given up after a while, and fails; in a bubble that a
// mutex keeps from going on it is given up too, but its goroutines remain.
//
// # Histories
//
// Beside the checks of single requirements a Run has workloads: publishers,
// members that join and leave, handlers that ack, retry, reject, release, stall
// and write to their events, and a restart where the harness has one. All that
// is done is written down with its times and as succeeded, failed, or unknown,
// and judges, one for each guarantee, look through the histories for a breach:
// for what happens rarely, or between two things that work alone. They are the
// subtests of "history". Workloads follow from a seed that is new for each Run;
// a failure prints it, and with the environment variable
// CATCHMENT_CONFORMANCE_SEED set to it there is one workload, of that seed.
// Goroutines still take turns as they like, so it may take several runs.
//
// # Reports
//
// A Run writes what it found as JSON and as a table in Markdown to the files
// that Harness.Report names, and, if the environment variable
// CATCHMENT_CONFORMANCE_REPORT names a directory, to files there that are named
// after the provider's package, and after the test if that is not called
// TestConformance. A report has the provider and its version, its capabilities
// and deviations, and for each requirement the result and the time in whole
// seconds; it names no machine and no path.
//
// # Testing
//
// The suite is tested by running it on brokers with a fault each: see the
// tests of this package.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// parallel is how many checks run at once on a server. They spend nearly all
// of their time waiting, so it has little to do with the number of cores.
const parallel = 16

// Run tests a provider. It returns when all checks have ended.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if err := h.validate(); err != nil {
		t.Fatalf("conformance: Harness: %v", err)
	}
	s := newSuite(h)
	s.each(t, len(requirements), func(i int) string { return requirements[i].ID }, func(t *testing.T, i int) {
		s.requirement(t, requirements[i])
	})
	// On a server a workload is work: it would hold up checks that measure time.
	t.Run(historyPart, s.histories)
	if err := s.report.write(t, h); err != nil {
		t.Errorf("conformance: the report: %v", err)
	}
}

// A suite is one Run.
type suite struct {
	Harness
	report *report
	slots  chan struct{} // taken by checks while they run, on a server
	limit  time.Duration // of a check, by its own clock
	hang   time.Duration // of a check, by the clock on the wall
}

func newSuite(h Harness) *suite {
	s := &suite{Harness: h.withDefaults(), report: newReport(h), slots: make(chan struct{}, parallel)}
	s.Open = func(t *testing.T) Broker {
		b := h.Open(t)
		s.report.opened(b)
		return b
	}
	s.limit = 30*time.Second + 30*s.AckWait + 4*s.Slack
	s.hang = s.limit + 10*time.Second
	if s.Bubble {
		s = s.inBubbles()
	}
	return s
}

// inBubbles returns the suite as it is for checks in bubbles. Time is free, but
// a broker that polls never lets it stand still, so it has to end somewhere.
func (s *suite) inBubbles() *suite {
	in := *s
	in.Bubble, in.limit, in.hang = true, 1000*time.Hour, time.Minute
	return &in
}

// each runs n subtests: one after another in bubbles, and all at once on a
// server. T.Parallel would run no more of them at a time than there are cores.
func (s *suite) each(t *testing.T, n int, name func(int) string, run func(*testing.T, int)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range n {
		one := func() { t.Run(name(i), func(t *testing.T) { run(t, i) }) }
		if s.Bubble {
			one()
		} else {
			wg.Go(one)
		}
	}
}

// requirement runs the checks of one requirement.
func (s *suite) requirement(t *testing.T, r Requirement) {
	cs := checks[r.ID]
	reason, deviates := s.Deviations[r.ID]
	if len(cs) == 0 {
		t.Skip("not checked here: " + unchecked[r.ID])
	}
	var mu sync.Mutex
	var failed, passed int
	s.each(t, len(cs), func(i int) string { return cs[i].name }, func(t *testing.T, i int) {
		note := func(result, reason string, took time.Duration) {
			s.report.note(r.ID, cs[i].name, result, reason, took)
		}
		if why := s.lacks(cs[i]); why != "" {
			note("skipped", why, 0)
			t.Skip(why)
		}
		began := time.Now()
		note("failed", "", 0) // unless it says otherwise: the harness may end the test
		err := s.check(t, cs[i])
		took := time.Since(began)
		if nothing, ok := errors.AsType[skipped](err); ok {
			note("skipped", nothing.reason, took)
			t.Skip(nothing.reason)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			passed++
			if !t.Failed() {
				note("passed", "", took)
			}
		case deviates:
			failed++
			note("deviates", "", took)
			t.Logf("deviates, as declared (%s): %v", reason, err)
		default:
			t.Errorf("%s\n%s\n%v", r.ID, r.Text, err)
		}
	})
	if deviates && failed == 0 && passed > 0 {
		t.Errorf("%s\n%s\nis listed in Deviations (%s), but nothing failed", r.ID, r.Text, reason)
	}
}

// lacks returns why a check cannot run, or "".
func (s *suite) lacks(c check) string {
	switch {
	case !s.Capabilities.Has(c.needs):
		return fmt.Sprintf("the harness does not declare %v", c.needs&^s.Capabilities)
	case s.Capabilities&c.unless != 0:
		return fmt.Sprintf("the harness declares %v", c.unless&s.Capabilities)
	case c.restart && s.Restart == nil:
		return "the harness has no Restart"
	case c.inject && s.Inject == nil:
		return "the harness has no Inject"
	case c.full && s.OpenFull == nil:
		return "the harness has no OpenFull"
	case c.discards && s.OpenDiscarding == nil:
		return "the harness has no OpenDiscarding"
	case c.deadFull && s.OpenDeadFull == nil:
		return "the harness has no OpenDeadFull"
	case c.bubble && !s.Bubble:
		return "needs a bubble: " + c.why
	case c.window && !s.Bubble && s.Duplicates > 10*s.AckWait:
		return fmt.Sprintf("the deduplication window of %v is too long to wait for", s.Duplicates)
	}
	return ""
}

// check runs one check and returns what it found.
func (s *suite) check(t *testing.T, c check) error {
	if c.fake {
		s = s.inBubbles()
	}
	if s.Bubble {
		return s.once(t, c)
	}
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	for try := 1; ; try++ {
		began := time.Now()
		err := s.once(t, c)
		if err == nil || !c.dedup || time.Since(began) < s.Duplicates || try == 3 {
			return err
		}
		t.Logf("took %v, with a deduplication window of %v; once more", time.Since(began), s.Duplicates)
	}
}

// once runs one check in its own bubble, if there is to be one. The check is
// given up when it takes too long in real time.
func (s *suite) once(t *testing.T, c check) error {
	var (
		mu   sync.Mutex
		err  error
		ends = fmt.Errorf("the check did not end: the test was ended from within")
		e    *env
	)
	run := func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), s.limit)
		defer cancel()
		mine := newEnv(ctx, t, s.Harness)
		mu.Lock()
		e = mine
		mu.Unlock()
		found := c.run(mine)
		mu.Lock()
		err, ends = found, nil
		mu.Unlock()
	}
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		if s.Bubble {
			synctest.Test(t, run)
		} else {
			run(t)
		}
	}()
	var p any
	select {
	case p = <-done:
	case <-time.After(s.hang):
		p = fmt.Sprintf("nothing for %v; all goroutines:\n%s", s.hang, stacks())
	}
	mu.Lock()
	defer mu.Unlock()
	switch {
	case err != nil:
		return err
	case p != nil:
		where := "before it began"
		if e != nil {
			where = e.doing()
		}
		return fmt.Errorf("%s: %v", where, p)
	case t.Failed() || t.Skipped():
		return nil // the harness has said why
	}
	return ends
}

func stacks() []byte {
	for size := 64 << 10; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return buf[:n]
		}
	}
}

// A check is one part of a requirement.
type check struct {
	name string
	do   func(*env) // fails by env.failf

	needs, unless         Capability // run with all of needs and none of unless
	restart, inject, full bool       // needs that function of the harness
	discards, deadFull    bool       // needs OpenDiscarding, OpenDeadFull
	window                bool       // waits for the deduplication window to end
	dedup                 bool       // shows nothing if it takes longer than the window
	bubble                bool       // runs in bubbles only
	fake                  bool       // needs no broker, and runs in a bubble always
	why                   string     // why bubble
}

// run runs the check and returns what it found.
func (c check) run(e *env) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		case skipped:
			err = v
		default:
			err = fmt.Errorf("panic %s: %v\n%s", e.doing(), v, debug.Stack())
		}
	}()
	c.do(e)
	return nil
}

// checks are the checks by requirement.
var checks = func() map[string][]check {
	all := make(map[string][]check)
	for _, family := range []map[string][]check{
		evtChecks, pubChecks, retChecks, subChecks, rcvChecks, ackChecks, clsChecks, runChecks, capChecks, dlqChecks, admChecks,
	} {
		maps.Copy(all, family)
	}
	return all
}()

// unchecked are the requirements that the suite has no check for, and why.
var unchecked = map[string]string{
	"SEC-1": "a rule for the code of providers, held by their own tests and by review",
	"SEC-2": "a rule for the code of providers, held by their own tests and by review",
	"SEC-3": "held by the fuzz tests of package event",
	"SEC-4": "a rule for the code, held by review",
}
