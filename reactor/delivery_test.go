package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// ways are the four ways to settle a delivery.
var ways = map[string]func(d *reactor.Delivery[string], ctx context.Context) error{
	"ack":     func(d *reactor.Delivery[string], ctx context.Context) error { return d.Ack(ctx) },
	"retry":   func(d *reactor.Delivery[string], ctx context.Context) error { return d.Retry(ctx, time.Second) },
	"reject":  func(d *reactor.Delivery[string], ctx context.Context) error { return d.Reject(ctx, "bad") },
	"release": func(d *reactor.Delivery[string], ctx context.Context) error { return d.Release(ctx) },
}

// TestSettle holds the four ways to what they ask of the settler.
func TestSettle(t *testing.T) {
	want := map[string]reactor.Outcome{
		"ack":     {Result: reactor.Acked},
		"retry":   {Result: reactor.Retried, After: time.Second},
		"reject":  {Result: reactor.Rejected, Reason: "bad"},
		"release": {Result: reactor.Released},
	}
	for name, settle := range ways {
		s := &settler{}
		d := s.delivery()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := settle(d, ended); err != nil {
			t.Errorf("%s with an ended context: %v, want nil [ACK-8]", name, err)
		}
		if diff := cmp.Diff(want[name], s.outcome()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSettleTwice holds a delivery to one settle, and a failed one to none
// [ACK-6].
func TestSettleTwice(t *testing.T) {
	down := errors.New("down")
	for first, settle := range ways {
		for second, again := range ways {
			s := &settler{onTry: func(_ context.Context, try int) error {
				if try == 1 {
					return down
				}
				return nil
			}}
			d := s.delivery()
			if err := settle(d, t.Context()); err != down {
				t.Errorf("%s of a broken delivery: %v, want %v", first, err, down)
			}
			if err := settle(d, t.Context()); err != nil {
				t.Errorf("%s after one that failed: %v, want nil", first, err)
			}
			before := s.outcome()
			if err := again(d, t.Context()); err != reactor.ErrSettled {
				t.Errorf("%s after %s: %v, want ErrSettled", second, first, err)
			}
			if n := len(s.tried(time.Now())); n != 2 || s.outcome() != before {
				t.Errorf("%s after %s reached the settler", second, first)
			}
			if _, err := d.Extend(t.Context()); err != reactor.ErrSettled {
				t.Errorf("extend after %s: %v, want ErrSettled", first, err)
			}
		}
	}
}

// TestSettleRefused holds Settle to outcomes that there are [ACK-3].
func TestSettleRefused(t *testing.T) {
	tests := []struct {
		name string
		o    reactor.Outcome
		want string
	}{
		{"no result", reactor.Outcome{}, "result 0"},
		{"unknown result", reactor.Outcome{Result: 5}, "result 5"},
		{"too long a delay", reactor.Outcome{Result: reactor.Retried, After: reactor.MaxRetryDelay + 1}, "24h0m0s is the longest"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &settler{}
			d := s.delivery()
			if err := d.Settle(t.Context(), test.o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Settle(%+v) = %v, want %q", test.o, err, test.want)
			}
			if err := d.Ack(t.Context()); err != nil {
				t.Errorf("ack after a refusal: %v, want nil", err)
			}
		})
	}
	s := &settler{}
	if err := s.delivery().Retry(t.Context(), reactor.MaxRetryDelay); err != nil {
		t.Errorf("retry after MaxRetryDelay: %v, want nil", err)
	}
	if err := (&settler{}).delivery().Retry(t.Context(), -time.Hour); err != nil {
		t.Errorf("retry after a negative delay: %v, want nil", err)
	}
}

// TestFence holds a delivery to its deadline, to the nanosecond [ACK-7].
func TestFence(t *testing.T) {
	for name, settle := range ways {
		for _, late := range []time.Duration{-1, 0, 1, time.Hour} {
			t.Run(fmt.Sprintf("%s %v", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &settler{ackWait: 10 * time.Second}
					d := s.delivery()
					time.Sleep(10*time.Second + late)
					var want error
					if late >= 0 {
						want = reactor.ErrLost
					}
					if err := settle(d, t.Context()); err != want {
						t.Errorf("%s = %v, want %v", name, err, want)
					}
					if sent := len(s.tried(time.Now())) > 0; sent != (want == nil) {
						t.Errorf("%s reached the settler: %v", name, sent)
					}
				})
			})
		}
	}
}

// TestFenceOfNoDeadline holds a zero deadline to be none.
func TestFenceOfNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := (&settler{}).delivery()
		time.Sleep(1000 * time.Hour)
		if !d.Deadline().IsZero() {
			t.Errorf("Deadline() = %v, want zero", d.Deadline())
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("ack = %v, want nil", err)
		}
	})
}

// TestExtend holds a delivery to the deadline that its settler gives it, and
// to the one it had when there is none [ACK-5].
func TestExtend(t *testing.T) {
	down := errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		s := &settler{ackWait: 10 * time.Second, onBeat: func(_ context.Context, try int) error {
			if try == 2 {
				return down
			}
			return nil
		}}
		d := s.delivery()
		began := time.Now()
		time.Sleep(10*time.Second - 1)
		want := began.Add(20*time.Second - 1)
		if got, err := d.Extend(t.Context()); err != nil || !got.Equal(want) || !d.Deadline().Equal(want) {
			t.Errorf("Extend = %v, %v; Deadline %v; want %v", got, err, d.Deadline(), want)
		}
		if _, err := d.Extend(t.Context()); err != down || !d.Deadline().Equal(want) {
			t.Errorf("Extend = %v, Deadline %v; want %v and %v as before", err, d.Deadline(), down, want)
		}
		time.Sleep(10 * time.Second)
		if _, err := d.Extend(t.Context()); err != reactor.ErrLost || len(s.extended(began)) != 2 {
			t.Errorf("Extend past the deadline = %v, want ErrLost and nothing sent", err)
		}
		if err := d.Ack(t.Context()); err != reactor.ErrLost {
			t.Errorf("ack past the deadline = %v, want ErrLost", err)
		}
	})
}

// TestLostByTheSettler holds a delivery to what its settler says: after
// ErrLost, wrapped or not, nothing more is sent.
func TestLostByTheSettler(t *testing.T) {
	gone := fmt.Errorf("gone: %w", reactor.ErrLost)
	s := &settler{onTry: func(context.Context, int) error { return gone }}
	d := s.delivery()
	if err := d.Ack(t.Context()); err != gone {
		t.Errorf("ack = %v, want %v", err, gone)
	}
	if err := d.Ack(t.Context()); !errors.Is(err, reactor.ErrLost) || len(s.tried(time.Now())) != 1 {
		t.Errorf("ack again = %v, want ErrLost and nothing sent", err)
	}
	s = &settler{onBeat: func(context.Context, int) error { return gone }}
	d = s.delivery()
	if _, err := d.Extend(t.Context()); err != gone {
		t.Errorf("extend = %v, want %v", err, gone)
	}
	if err := d.Ack(t.Context()); !errors.Is(err, reactor.ErrLost) || len(s.tried(time.Now())) != 0 {
		t.Errorf("ack after a lost extend = %v, want ErrLost and nothing sent", err)
	}
}

// TestNested holds a delivery to being a settler of another, so that sources
// can wrap each other.
func TestNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settler{value: "7", ackWait: 10 * time.Second}
		inner := s.delivery()
		outer := reactor.NewDelivery(7, inner.Info, inner.Deadline(), reactor.Settler(inner))
		time.Sleep(5 * time.Second)
		if _, err := outer.Extend(t.Context()); err != nil || !outer.Deadline().Equal(inner.Deadline()) {
			t.Errorf("Extend = %v, deadlines %v and %v, want the same", err, outer.Deadline(), inner.Deadline())
		}
		if err := outer.Reject(t.Context(), "bad"); err != nil {
			t.Errorf("Reject = %v, want nil", err)
		}
		checkResult(t, reactor.Rejected, s)
		if err := inner.Ack(t.Context()); err != reactor.ErrSettled {
			t.Errorf("ack of the inner one = %v, want ErrSettled", err)
		}
		inner = s.delivery()
		outer = reactor.NewDelivery(7, inner.Info, inner.Deadline(), reactor.Settler(inner))
		if err := inner.Ack(t.Context()); err != nil {
			t.Errorf("ack of the inner one = %v, want nil", err)
		}
		if err := outer.Ack(t.Context()); err != reactor.ErrSettled {
			t.Errorf("ack of the outer one = %v, want ErrSettled", err)
		}
	})
}

// TestResultString names the results.
func TestResultString(t *testing.T) {
	for r, want := range map[reactor.Result]string{
		0: "result 0", reactor.Acked: "acked", reactor.Retried: "retried",
		reactor.Rejected: "rejected", reactor.Released: "released", 9: "result 9",
	} {
		if got := r.String(); got != want {
			t.Errorf("Result(%d).String() = %q, want %q", uint8(r), got, want)
		}
	}
}
