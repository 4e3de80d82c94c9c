package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/catchment-events/catchment/reactor"
)

// A schedule is what happens to a Reactor: what is published, what its handler
// does with it, and when it is paused, resumed and drained.
type schedule struct {
	Concurrency  int
	Keyed        bool
	Unsequenced  bool
	MaxInFlight  int
	MaxAttempts  int
	DrainTimeout time.Duration
	Published    []published
	Events       []happening
	Drain        time.Duration
}

// A published value, its key, and what becomes of it in each call.
type published struct {
	At   time.Duration
	Key  int
	Fate []does
}

type does struct {
	What  string // ok, fail, reject, or lose: the delivery, meanwhile
	Took  time.Duration
	After time.Duration // of fail
}

type happening struct {
	At   time.Duration
	What string // pause, resume, or lose a value
	N    int    // the value
}

// anySchedule draws a schedule. Half of them last until everything is done.
func anySchedule() *rapid.Generator[schedule] {
	seconds := func(most int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(0, most*2), func(n int) time.Duration { return time.Duration(n) * time.Second / 2 })
	}
	return rapid.Custom(func(t *rapid.T) schedule {
		s := schedule{
			Concurrency:  rapid.IntRange(1, 4).Draw(t, "concurrency"),
			Keyed:        rapid.IntRange(0, 3).Draw(t, "keyed") > 0,
			Unsequenced:  rapid.IntRange(0, 3).Draw(t, "sequenced") == 0,
			MaxInFlight:  rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, "in flight"),
			MaxAttempts:  rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "attempts"),
			DrainTimeout: rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "drain timeout"),
			Drain:        72 * time.Hour,
		}
		what := []string{"ok", "ok", "fail", "fail", "reject", "lose"}
		happens := []string{"pause", "resume", "lose", "lose"}
		if s.Unsequenced { // then nobody knows which value it is that comes again
			what, happens = what[:5], nil
		}
		fate := rapid.Custom(func(t *rapid.T) does {
			return does{
				rapid.SampledFrom(what).Draw(t, "does"),
				rapid.OneOf(rapid.Just(time.Duration(0)), seconds(3), seconds(45)).Draw(t, "took"),
				seconds(20).Draw(t, "after"),
			}
		})
		s.Published = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) published {
			return published{
				rapid.OneOf(rapid.Just(time.Duration(0)), seconds(60)).Draw(t, "at"),
				rapid.IntRange(0, 2).Draw(t, "key"),
				rapid.SliceOfN(fate, 0, 3).Draw(t, "fate"),
			}
		}), 1, 15).Draw(t, "published")
		if happens != nil {
			s.Events = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) happening {
				return happening{
					seconds(90).Draw(t, "at"),
					rapid.SampledFrom(happens).Draw(t, "what"),
					rapid.IntRange(0, len(s.Published)-1).Draw(t, "value"),
				}
			}), 0, 6).Draw(t, "events")
		}
		if rapid.Bool().Draw(t, "drained early") {
			s.Drain = seconds(90).Draw(t, "drain")
		}
		return s
	})
}

// A course is a schedule while it runs.
type course struct {
	schedule
	b *broker

	mu sync.Mutex
	// Below: under mu.
	running  int
	keys     map[string]int // that handlers run of
	calls    map[string]int
	problems []string
}

func (c *course) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// run runs the schedule, in a bubble, and returns what was wrong.
func (s schedule) run(t *testing.T) []string {
	c := &course{schedule: s, b: newBroker(10 * time.Second), keys: make(map[string]int), calls: make(map[string]int)}
	c.b.maxInFlight, c.b.maxAttempts, c.b.unsequenced = s.MaxInFlight, s.MaxAttempts, s.Unsequenced
	fates := make(map[string][]does)
	name := func(n int) string { return fmt.Sprintf("%d/%d", s.Published[n].Key, n) }
	for n, p := range s.Published {
		fates[name(n)] = p.Fate
	}
	opts := &reactor.Options[string]{Concurrency: s.Concurrency, DrainTimeout: s.DrainTimeout}
	if s.Keyed {
		opts.Key = keyOf
	}
	react := reactor.New("r", opens(c.b), func(ctx context.Context, v string) error {
		c.enter(v)
		defer c.leave(v)
		c.mu.Lock()
		n := c.calls[v]
		c.calls[v]++
		c.mu.Unlock()
		if n >= len(fates[v]) {
			return nil
		}
		do := fates[v][n]
		time.Sleep(do.Took)
		switch do.What {
		case "fail":
			return reactor.RetryAfter(errBoom, do.After)
		case "reject":
			return reactor.Reject(errBoom)
		case "lose":
			c.b.lose(v)
			time.Sleep(do.Took)
		}
		return nil
	}, opts)
	r := startFunc(t, react.Run)
	ended, end := context.WithCancel(t.Context())
	for n, p := range s.Published {
		time.AfterFunc(p.At, func() { c.b.publish(name(n)) })
	}
	var began, done atomic.Int64 // Resumes
	resume := func() {
		began.Add(1)
		react.Resume()
		done.Add(1)
	}
	for _, e := range s.Events {
		time.AfterFunc(e.At, func() {
			switch e.What {
			case "pause":
				before := done.Load()
				if err := react.Pause(ended); err != nil && !errors.Is(err, context.Canceled) && began.Load() == before {
					c.problem("Pause returned %v", err)
				}
			case "resume":
				resume()
			case "lose":
				c.b.loseIfOut(name(e.N))
			}
		})
	}
	time.AfterFunc(2*time.Minute, resume)
	time.Sleep(s.Drain)
	r.stop()
	if err := r.wait(); err != nil || r.panic != nil {
		c.problem("Run returned %v, panicked with %v", err, r.panic)
	}
	c.check()
	end()
	time.Sleep(3 * time.Minute) // what was to be published is
	return c.problems
}

// enter is called when a handler begins.
func (c *course) enter(v string) {
	key := keyOf(v)
	c.mu.Lock()
	c.running++
	c.keys[key]++
	running, ofKey := c.running, c.keys[key]
	c.mu.Unlock()
	if running > c.Concurrency {
		c.problem("%d handlers run", running)
	}
	if !c.Keyed {
		return
	}
	if ofKey > 1 {
		c.problem("two handlers of key %s run", key)
	}
	c.b.mu.Lock()
	var before []string
	for _, l := range c.b.letters {
		if l.value == v {
			break
		}
		if keyOf(l.value) == key && l.end == "" {
			before = append(before, l.value)
		}
	}
	c.b.mu.Unlock()
	if before != nil {
		c.problem("%s is handled before %v, at %v", v, before, time.Now())
	}
}

func (c *course) leave(v string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.keys[keyOf(v)]--
}

// check looks at what Run left.
func (c *course) check() {
	if c.running != 0 {
		c.problem("%d handlers run after Run", c.running)
	}
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range b.errs {
		c.problem("%s", err)
	}
	if b.expired > 0 {
		c.problem("%d deliveries were not kept alive", b.expired)
	}
	if b.left > 0 {
		c.problem("%d deliveries were neither settled nor given back", b.left)
	}
	if c.Drain < time.Hour {
		return
	}
	for _, l := range b.letters {
		if l.end == "" {
			c.problem("%s has not ended", l.value)
		}
	}
}

// loseIfOut is lose, of a value that may not be published yet.
func (b *broker) loseIfOut(value string) {
	b.mu.Lock()
	known := false
	for _, l := range b.letters {
		known = known || l.value == value
	}
	b.mu.Unlock()
	if known {
		b.lose(value)
	}
}

// TestAnySchedule holds a Reactor, whatever happens, to Concurrency and the order
// of keys [RUN-2], to settling each delivery once or giving it back [RUN-3], to
// keeping it alive meanwhile [RUN-4], and to returning after its last handler.
func TestAnySchedule(t *testing.T) {
	for n := range 20 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s := anySchedule().Draw(rt, "schedule")
				var problems []string
				synctest.Test(t, func(t *testing.T) { problems = s.run(t) })
				if problems != nil {
					rt.Fatal(strings.Join(problems, "\n"))
				}
			})
		})
	}
}
