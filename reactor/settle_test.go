package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// A diary is an observer that writes down what it is told.
type diary struct {
	mu          sync.Mutex
	lines       []string
	settlements []reactor.Settlement
}

func (d *diary) observer() *reactor.Observer[string] {
	return &reactor.Observer[string]{
		Received: func(v string, info reactor.Info) {
			d.write(fmt.Sprintf("received %s attempt %d", v, info.Attempt))
		},
		Settled: func(v string, info reactor.Info, s reactor.Settlement) {
			d.write(fmt.Sprintf("%v %s attempt %d: %v", s.Outcome.Result, v, info.Attempt, s.Err))
			d.mu.Lock()
			defer d.mu.Unlock()
			d.settlements = append(d.settlements, s)
		},
	}
}

func (d *diary) write(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) read() ([]string, []reactor.Settlement) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines), slices.Clone(d.settlements)
}

// TestObserver holds Run to telling what it does, in its order.
func TestObserver(t *testing.T) {
	boom := errors.New("boom")
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.add("a", "b")
		var d diary
		r := start(t, src, func(_ context.Context, v string) error {
			d.write("handled " + v)
			time.Sleep(3 * time.Second)
			if v == "b" {
				return boom
			}
			return nil
		}, &reactor.Options[string]{Observer: d.observer()})
		time.Sleep(time.Minute)
		r.drain(t)
		lines, settlements := d.read()
		want := []string{
			"received a attempt 1", "handled a", "acked a attempt 1: <nil>",
			"received b attempt 1", "handled b", "retried b attempt 1: <nil>",
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		for i, s := range settlements {
			if s.Duration != 3*time.Second {
				t.Errorf("settlement %d: the handler took %v, want 3s", i, s.Duration)
			}
		}
		if settlements[0].Cause != nil || settlements[1].Cause != boom {
			t.Errorf("the causes are %v and %v, want nil and boom", settlements[0].Cause, settlements[1].Cause)
		}
	})
}

// TestObserverOfNothing holds Run to observers with nil functions.
func TestObserverOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		s := src.add("a")[0]
		r := start(t, src, sleepFor(0), &reactor.Options[string]{Observer: &reactor.Observer[string]{}})
		synctest.Wait()
		r.drain(t)
		checkResult(t, reactor.Acked, s)
	})
}

// TestSettleFails holds Run to trying a settle again with growing pauses, to
// telling the observer of each try, and to calling the handler once [RUN-9].
func TestSettleFails(t *testing.T) {
	down := errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		s := src.put(&settler{value: "a", info: reactor.Info{Attempt: 1}, onTry: func(_ context.Context, try int) error {
			if try < 12 {
				return down
			}
			return nil
		}})
		var d diary
		handled := 0
		r := start(t, src, func(context.Context, string) error {
			handled++
			return nil
		}, &reactor.Options[string]{Observer: d.observer()})
		began := time.Now()
		time.Sleep(time.Minute)
		r.drain(t)
		checkResult(t, reactor.Acked, s)
		if handled != 1 {
			t.Errorf("the handler was called %d times, want once", handled)
		}
		lines, settlements := d.read()
		if len(lines) != 13 || len(settlements) != 12 {
			t.Fatalf("told %q, want of 12 tries", lines)
		}
		for i, settlement := range settlements {
			if i < 11 && settlement.Err != down || i == 11 && settlement.Err != nil {
				t.Errorf("try %d: told of %v", i+1, settlement.Err)
			}
		}
		tries := s.tried(began)
		for i, limit := 1, 10*time.Millisecond; i < len(tries); i, limit = i+1, min(2*limit, time.Second) {
			if pause := tries[i] - tries[i-1]; pause < limit/2 || pause > limit {
				t.Errorf("pause %d is %v, want the upper half of %v", i, pause, limit)
			}
		}
	})
}

// TestSettleFailsUntilTheDeadline holds Run to giving up when the delivery is
// lost, and to going on with the next [RUN-9].
func TestSettleFailsUntilTheDeadline(t *testing.T) {
	tests := []struct {
		name string
		fail func(ctx context.Context) error
	}{
		{"at once", func(context.Context) error { return errors.New("down") }},
		{"after hanging", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(10 * time.Second)
				down := func(ctx context.Context, _ int) error { return test.fail(ctx) }
				s := src.put(&settler{value: "a", onTry: down, onBeat: down})
				next := src.add("next")[0]
				var d diary
				began := time.Now()
				r := start(t, src, sleepFor(0), &reactor.Options[string]{Observer: d.observer()})
				time.Sleep(12 * time.Second)
				synctest.Wait()
				checkResult(t, reactor.Acked, next)
				r.drain(t)
				checkResult(t, 0, s)
				for _, at := range s.tried(began) {
					if at >= 10*time.Second {
						t.Errorf("tried to settle after %v, past the deadline", at)
					}
				}
				_, settlements := d.read()
				last := settlements[len(settlements)-2]
				if !errors.Is(last.Err, reactor.ErrLost) {
					t.Errorf("the observer was last told of %v, want ErrLost", last.Err)
				}
			})
		})
	}
}

// TestSettleKeepsAlive holds Run to extending a delivery whose settle fails:
// the lease lasts until it is settled [RUN-4].
func TestSettleKeepsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		began := time.Now()
		s := src.put(&settler{value: "a", onTry: func(context.Context, int) error {
			if time.Since(began) < 25*time.Second {
				return errors.New("down")
			}
			return nil
		}})
		r := start(t, src, sleepFor(0), nil)
		time.Sleep(time.Minute)
		r.drain(t)
		checkResult(t, reactor.Acked, s)
	})
}

// TestSettleElsewhere holds Run to leaving alone what somebody else has
// settled or has now.
func TestSettleElsewhere(t *testing.T) {
	for _, err := range []error{reactor.ErrSettled, reactor.ErrLost} {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(time.Minute)
			s := src.put(&settler{value: "a", onTry: func(context.Context, int) error { return fmt.Errorf("no: %w", err) }})
			var d diary
			r := start(t, src, sleepFor(0), &reactor.Options[string]{Observer: d.observer()})
			time.Sleep(10 * time.Second)
			r.drain(t)
			if n := len(s.tried(time.Now())); n != 1 {
				t.Errorf("after %v: %d tries, want one", err, n)
			}
			if _, settlements := d.read(); len(settlements) != 1 {
				t.Errorf("after %v: told of %d tries, want one", err, len(settlements))
			}
		})
	}
}
