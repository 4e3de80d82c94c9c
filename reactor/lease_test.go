package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// sleepFor handles for that long, or until it is cut off.
func sleepFor(d time.Duration) reactor.Handler[string] {
	return func(ctx context.Context, _ string) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// TestLease holds Run to extending each delivery when half of its time is over,
// for as long as its handler runs [RUN-4].
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		s := src.add("a")[0]
		began := time.Now()
		r := start(t, src, sleepFor(27*time.Second), nil)
		time.Sleep(time.Hour)
		r.drain(t)
		var want []time.Duration
		for at := 5 * time.Second; at < 27*time.Second; at += 5 * time.Second {
			want = append(want, at)
		}
		if diff := cmp.Diff(want, s.extended(began)); diff != "" {
			t.Errorf("extended after (-want +got):\n%s", diff)
		}
		checkResult(t, reactor.Acked, s)
	})
}

// TestLeaseOfQuick holds Run to no extension of what is settled before half of
// its time is over, and of what never times out [RUN-4].
func TestLeaseOfQuick(t *testing.T) {
	for _, ackWait := range []time.Duration{0, time.Minute} {
		t.Run(ackWait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(ackWait)
				s := src.add("a")[0]
				r := start(t, src, sleepFor(29*time.Second), nil)
				time.Sleep(time.Hour)
				r.drain(t)
				if got := s.extended(time.Now()); got != nil {
					t.Errorf("extended %d times, want never", len(got))
				}
				checkResult(t, reactor.Acked, s)
			})
		})
	}
}

// TestLeaseOfMany holds Run to one timer for all its deliveries: while 10,000
// handlers run there is one goroutine for each and no more [RUN-4].
func TestLeaseOfMany(t *testing.T) {
	const many = 10_000
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		var added []*settler
		for i := range many {
			added = append(added, src.add(fmt.Sprint(i))...)
		}
		before := runtime.NumGoroutine()
		r := start(t, src, sleepFor(12*time.Second), &reactor.Options[string]{Concurrency: many})
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > many+many/10 {
			t.Errorf("%d goroutines for %d handlers", n, many)
		}
		time.Sleep(time.Minute)
		r.drain(t)
		checkResult(t, reactor.Acked, added...)
	})
}

// TestLeaseOverlapping holds Run to each deadline when deliveries come one by
// one and the timer must follow the one that is due first [RUN-4]; and to
// extending them at few moments, so that many do not keep it busy.
func TestLeaseOverlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		r := start(t, src, sleepFor(61*time.Second), &reactor.Options[string]{Concurrency: 100})
		var added []*settler
		for i := range 100 {
			added = append(added, src.add(fmt.Sprint(i))...)
			time.Sleep(170 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		r.drain(t)
		checkResult(t, reactor.Acked, added...)
		moments := make(map[time.Duration]bool)
		for _, s := range added {
			for _, at := range s.extended(time.Now()) {
				moments[at] = true
			}
			// Never needlessly often either: a third of the time must be over.
			if n := len(s.extended(time.Now())); n < 12 || n > 18 {
				t.Errorf("%s was extended %d times in 61s, want 12 to 18", s.value, n)
			}
		}
		if len(moments) > 80 {
			t.Errorf("extended at %d moments in 78s, want 80 at most", len(moments))
		}
	})
}

// TestLeaseExtendFails holds Run to trying a failed extension again, before
// the deadline [RUN-4].
func TestLeaseExtendFails(t *testing.T) {
	tests := []struct {
		name string
		fail func(ctx context.Context) error
	}{
		{"at once", func(context.Context) error { return errors.New("no connection") }},
		{"after hanging", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(10 * time.Second)
				s := src.put(&settler{value: "a", onBeat: func(ctx context.Context, try int) error {
					if try == 1 {
						return test.fail(ctx)
					}
					return nil
				}})
				r := start(t, src, sleepFor(15*time.Second), nil)
				time.Sleep(time.Minute)
				r.drain(t)
				checkResult(t, reactor.Acked, s)
			})
		})
	}
}

// TestLeaseLost holds Run to telling a handler whose delivery is lost, when it
// is [RUN-5], and to settling nothing then [ACK-7].
func TestLeaseLost(t *testing.T) {
	tests := []struct {
		name   string
		extend func(ctx context.Context, try int) error
		want   time.Duration // when the handler is told
	}{
		{"Extend fails until the deadline", func(context.Context, int) error { return errors.New("no connection") }, 10 * time.Second},
		{"Extend hangs", func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, 10 * time.Second},
		{"Extend hangs and is deaf", func(context.Context, int) error {
			time.Sleep(time.Minute)
			return errors.New("no connection")
		}, 10 * time.Second},
		{"Extend returns ErrLost", func(context.Context, int) error { return fmt.Errorf("gone: %w", reactor.ErrLost) }, 5 * time.Second},
		{"Extend returns ErrLost the second time", func(_ context.Context, try int) error {
			if try == 2 {
				return reactor.ErrLost
			}
			return nil
		}, 10 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(10 * time.Second)
				s := src.put(&settler{value: "a", onBeat: test.extend})
				began := time.Now()
				var told time.Duration
				var cause error
				r := start(t, src, func(ctx context.Context, _ string) error {
					<-ctx.Done()
					told, cause = time.Since(began), context.Cause(ctx)
					return ctx.Err()
				}, nil)
				time.Sleep(time.Hour)
				r.drain(t)
				if told != test.want || !errors.Is(cause, reactor.ErrLost) {
					t.Errorf("the handler was told after %v of %v, want %v, ErrLost", told, cause, test.want)
				}
				if n := len(s.tried(began)); n > 0 {
					t.Errorf("the lost delivery was settled %d times, want never", n)
				}
			})
		})
	}
}

// TestLeaseExtendHangsWhileSettling holds Run to settling what was handled in
// time although an extension hangs: each try of one has an end.
func TestLeaseExtendHangsWhileSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		s := src.put(&settler{value: "a", onBeat: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		r := start(t, src, sleepFor(6*time.Second), nil)
		time.Sleep(time.Minute)
		r.drain(t)
		checkResult(t, reactor.Acked, s)
	})
}

// TestLeaseWithoutEnd holds Run to an Extend that makes the delivery never
// time out.
func TestLeaseWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		never := &endless{}
		d := reactor.NewDelivery("a", reactor.Info{}, time.Now().Add(10*time.Second), never)
		r := start(t, &single{fake: src, d: d}, sleepFor(time.Minute), nil)
		time.Sleep(time.Hour)
		r.drain(t)
		if never.extends != 1 || never.settled != reactor.Acked {
			t.Errorf("extended %d times and %v, want once and acked", never.extends, never.settled)
		}
	})
}

// endless is a settler whose first Extend takes the deadline away.
type endless struct {
	extends int
	settled reactor.Result
}

func (e *endless) Settle(_ context.Context, o reactor.Outcome) error {
	e.settled = o.Result
	return nil
}

func (e *endless) Extend(context.Context) (time.Time, error) {
	e.extends++
	return time.Time{}, nil
}

// single hands out one delivery that the test made.
type single struct {
	*fake
	d *reactor.Delivery[string]
}

func (s *single) Receive(ctx context.Context) (*reactor.Delivery[string], error) {
	if d := s.d; d != nil {
		s.d = nil
		return d, nil
	}
	return s.fake.Receive(ctx)
}
