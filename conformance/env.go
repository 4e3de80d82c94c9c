package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// env is what a check works with: a broker to open, names that nobody else
// has, and steps that end the check when they fail. A check never sees the
// testing.T, so the suite can be run on a faulty broker and asked whether it
// noticed.
//
// A step that fails panics with a failure, which check.run recovers; so checks
// read as what they do. Goroutines of a check are started by env.async.
type env struct {
	Harness
	ctx   context.Context // of the check
	began time.Time
	id    string       // of the run
	count atomic.Int64 // of names and ids

	provider string // the package of the broker, in cls3

	openBroker func() Broker
	openFake   func() Broker // what RUN-10 runs on
	openFull   func() Broker
	discarding func(events int) Broker
	deadFull   func() (b Broker, room func())
	restarted  func(Broker) Broker
	injected   func(b Broker, header map[string][]string, body []byte)

	mu sync.Mutex
	// Below: under mu.
	step    string // what was begun last
	since   time.Time
	premise string // what was done, for failf
}

// failure is what a failed step panics with.
type failure struct{ error }

func newEnv(ctx context.Context, t *testing.T, h Harness) *env {
	return &env{
		Harness:    h,
		ctx:        ctx,
		began:      time.Now(),
		id:         "c" + strconv.FormatUint(rand.Uint64()>>24, 36),
		openBroker: func() Broker { return h.Open(t) },
		openFake:   h.openFake,
		openFull:   func() Broker { return h.OpenFull(t) },
		discarding: func(events int) Broker { return h.OpenDiscarding(t, events) },
		deadFull:   func() (Broker, func()) { return h.OpenDeadFull(t) },
		restarted:  func(b Broker) Broker { return h.Restart(t, b) },
		injected:   func(b Broker, header map[string][]string, body []byte) { h.Inject(t, b, header, body) },
	}
}

// failf ends the check. The text is preceded by the time since it began and by
// what was given.
func (e *env) failf(format string, args ...any) {
	e.mu.Lock()
	premise := e.premise
	e.mu.Unlock()
	if premise != "" {
		premise = ", " + premise
	}
	panic(failure{fmt.Errorf("after %v%s: %w", time.Since(e.began), premise, fmt.Errorf(format, args...))})
}

// given says what the check has done that what comes now is due to, where the
// steps alone do not tell. It holds until the next call; "" ends it.
func (e *env) given(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.premise = fmt.Sprintf(format, args...)
}

// ok ends the check if err is not nil.
func (e *env) ok(err error, format string, args ...any) {
	if err != nil {
		e.failf("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// is ends the check unless err wraps want.
func (e *env) is(err, want error, format string, args ...any) {
	if !errors.Is(err, want) {
		e.failf("%s: want an error that wraps %q, got: %v", fmt.Sprintf(format, args...), want, err)
	}
}

// begin notes what is done now, for the report of a check that hangs.
func (e *env) begin(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.step, e.since = fmt.Sprintf(format, args...), time.Now()
}

func (e *env) doing() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.step == "" {
		return "before its first step"
	}
	return fmt.Sprintf("in %s, begun %v after the check", e.step, e.since.Sub(e.began))
}

// Time.

// prompt is how long something may take that takes no time by the contract. It
// is waited out only when a check fails.
func (e *env) prompt() time.Duration {
	if e.Bubble {
		return e.AckWait / 10
	}
	return 10 * e.AckWait
}

// long is an AckWait that does not run out during a check, unless it is meant
// to: much more than prompt.
func (e *env) long() time.Duration {
	if e.Bubble {
		return 10_000 * e.AckWait
	}
	return 60 * e.AckWait
}

// absence is how long nothing must arrive for nothing to be coming, where no
// deadline says so and no order is promised.
func (e *env) absence() time.Duration {
	if e.Bubble {
		return 100 * e.AckWait
	}
	return e.AckWait / 2
}

// later is the latest time at which something is there that is due at t.
func (e *env) later(t time.Time) time.Time {
	if e.Bubble {
		return t.Add(e.Slack)
	}
	return t.Add(e.Slack + e.prompt())
}

// pause lets time pass.
func (e *env) pause(d time.Duration) {
	e.begin("a pause of %v", d)
	select {
	case <-time.After(d):
	case <-e.ctx.Done():
		e.failf("the check takes too long: %w", e.ctx.Err())
	}
}

// tick lets a little time pass, so that the next event has another time.
func (e *env) tick() { e.pause(max(e.AckWait/200, time.Millisecond)) }

// Things with names.

func (e *env) open() Broker {
	e.begin("Open")
	return e.openBroker()
}

// Steps.

// async runs f in a goroutine. The function that it returns waits for f and
// ends the check if f failed; a check calls it once.
func (e *env) async(f func()) (wait func()) {
	failed := make(chan any, 1)
	go func() {
		defer func() { failed <- recover() }()
		f()
	}()
	return func() {
		if p := <-failed; p != nil {
			panic(p)
		}
	}
}

// takes ends the check unless f returns within d, by which it proves that f
// honours its context or otherwise does not wait.
func (e *env) takes(d time.Duration, what string, f func()) {
	done := make(chan struct{})
	wait := e.async(func() { defer close(done); f() })
	select {
	case <-done:
		wait()
	case <-time.After(d):
		e.failf("%s has not returned %v later", what, d)
	}
}
