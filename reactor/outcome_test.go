package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// TestOutcome holds Run to what a handler's error makes of a delivery [RUN-1].
func TestOutcome(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name string
		err  error
		want reactor.Outcome
	}{
		{"nil acks", nil, reactor.Outcome{Result: reactor.Acked}},
		{"an error retries after the backoff", boom,
			reactor.Outcome{Result: reactor.Retried, After: 7 * time.Second, Reason: "boom"}},
		{"Reject rejects", reactor.Reject(boom),
			reactor.Outcome{Result: reactor.Rejected, Reason: "boom"}},
		{"a wrapped Reject rejects, with the whole text", fmt.Errorf("order 1: %w", reactor.Reject(boom)),
			reactor.Outcome{Result: reactor.Rejected, Reason: "order 1: boom"}},
		{"a joined Reject rejects", errors.Join(errors.New("first"), reactor.Reject(boom)),
			reactor.Outcome{Result: reactor.Rejected, Reason: "first\nboom"}},
		{"Reject of nil acks", reactor.Reject(nil), reactor.Outcome{Result: reactor.Acked}},
		{"RetryAfter retries after its delay", reactor.RetryAfter(boom, time.Minute),
			reactor.Outcome{Result: reactor.Retried, After: time.Minute, Reason: "boom"}},
		{"a wrapped RetryAfter retries after its delay", fmt.Errorf("order 1: %w", reactor.RetryAfter(boom, time.Minute)),
			reactor.Outcome{Result: reactor.Retried, After: time.Minute, Reason: "order 1: boom"}},
		{"RetryAfter of zero retries at once", reactor.RetryAfter(boom, 0),
			reactor.Outcome{Result: reactor.Retried, Reason: "boom"}},
		{"RetryAfter of too long is cut", reactor.RetryAfter(boom, 1000*time.Hour),
			reactor.Outcome{Result: reactor.Retried, After: reactor.MaxRetryDelay, Reason: "boom"}},
		{"RetryAfter of nil acks", reactor.RetryAfter(nil, time.Minute), reactor.Outcome{Result: reactor.Acked}},
		{"Reject wins over RetryAfter", reactor.RetryAfter(reactor.Reject(boom), time.Minute),
			reactor.Outcome{Result: reactor.Rejected, Reason: "boom"}},
		{"a context error of the handler's own is an error", context.Canceled,
			reactor.Outcome{Result: reactor.Retried, After: 7 * time.Second, Reason: "context canceled"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				s := src.add("a")[0]
				handled := 0
				r := start(t, src, func(context.Context, string) error {
					handled++
					return test.err
				}, &reactor.Options[string]{Backoff: func(int) time.Duration { return 7 * time.Second }})
				synctest.Wait()
				r.drain(t)
				if diff := cmp.Diff(test.want, s.outcome()); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if handled != 1 {
					t.Errorf("the handler was called %d times, want once", handled)
				}
			})
		})
	}
}

// TestBackoffOfAttempt holds Run to asking for the delay of the attempt that
// failed, and to cutting what it gets to MaxRetryDelay [RUN-1, ACK-3].
func TestBackoffOfAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		third := src.put(&settler{value: "third", info: reactor.Info{Attempt: 3}})
		last := src.put(&settler{value: "last", info: reactor.Info{Attempt: 1000}})
		r := start(t, src, func(context.Context, string) error { return errors.New("boom") },
			&reactor.Options[string]{Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * time.Hour }})
		synctest.Wait()
		r.drain(t)
		if got := third.outcome().After; got != 3*time.Hour {
			t.Errorf("the third attempt is retried after %v, want 3h", got)
		}
		if got := last.outcome().After; got != reactor.MaxRetryDelay {
			t.Errorf("the thousandth attempt is retried after %v, want %v", got, reactor.MaxRetryDelay)
		}
	})
}

// TestMarkedErrors holds Reject and RetryAfter to being transparent.
func TestMarkedErrors(t *testing.T) {
	boom := errors.New("boom")
	for name, err := range map[string]error{
		"Reject":     reactor.Reject(boom),
		"RetryAfter": reactor.RetryAfter(boom, time.Second),
	} {
		if !errors.Is(err, boom) || err.Error() != "boom" {
			t.Errorf("%s(boom) = %v, must wrap boom and have its text", name, err)
		}
	}
	if reactor.Reject(nil) != nil || reactor.RetryAfter(nil, time.Second) != nil {
		t.Error("Reject(nil) and RetryAfter(nil) must be nil")
	}
}
