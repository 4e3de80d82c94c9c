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

// TestInfo holds a handler's context to carrying what its delivery does
// [RUN-5].
func TestInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := reactor.Info{
			Attempt: 3, MaxAttempts: 3, Sequence: 42, Stored: time.Now(),
			Annotations: map[string]string{"a": "b"}, Native: "native",
		}
		src := newFake(time.Minute)
		src.put(&settler{value: "a", info: want})
		var got reactor.Info
		r := start(t, src, func(ctx context.Context, _ string) error {
			got = reactor.InfoFrom(ctx)
			return nil
		}, nil)
		synctest.Wait()
		r.drain(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("InfoFrom (-want +got):\n%s", diff)
		}
	})
}

// TestWithInfo holds InfoFrom to what WithInfo put there, the inner one first.
func TestWithInfo(t *testing.T) {
	if got := reactor.InfoFrom(t.Context()); got.Attempt != 0 {
		t.Errorf("InfoFrom of another context = %+v, want zero", got)
	}
	ctx := reactor.WithInfo(t.Context(), reactor.Info{Attempt: 1})
	inner := reactor.WithInfo(ctx, reactor.Info{Attempt: 2})
	if a, b := reactor.InfoFrom(ctx).Attempt, reactor.InfoFrom(inner).Attempt; a != 1 || b != 2 {
		t.Errorf("attempts are %d and %d, want 1 and 2", a, b)
	}
}

// TestLast holds Last to the attempt after which there is none.
func TestLast(t *testing.T) {
	for _, test := range []struct {
		attempt, of int
		want        bool
	}{{1, 0, false}, {1000, 0, false}, {1, 1, true}, {1, 3, false}, {2, 3, false}, {3, 3, true}, {4, 3, true}} {
		if got := (reactor.Info{Attempt: test.attempt, MaxAttempts: test.of}).Last(); got != test.want {
			t.Errorf("attempt %d of %d: Last() = %v", test.attempt, test.of, got)
		}
	}
}

// TestBatchError holds the error of a batch to its text and to matching what
// it holds.
func TestBatchError(t *testing.T) {
	a, b := errors.New("a"), &reactor.PanicError{Value: "b"}
	tests := []struct {
		name string
		errs []error
		want string
		is   bool
	}{
		{"none", nil, "no failures in a batch", false},
		{"all nil", []error{nil, nil}, "no failures in a batch", false},
		{"one of three", []error{nil, a, nil}, "1 of 3 failed, first at index 1: a", true},
		{"two of two", []error{fmt.Errorf("x: %w", a), b}, "2 of 2 failed, first at index 0: x: a", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var err error = &reactor.BatchError{Errors: test.errs}
			if err.Error() != test.want {
				t.Errorf("Error() = %q, want %q", err, test.want)
			}
			if errors.Is(fmt.Errorf("publish: %w", err), a) != test.is {
				t.Errorf("errors.Is finds a: %v, want %v", !test.is, test.is)
			}
		})
	}
	var p *reactor.PanicError
	if err := error(&reactor.BatchError{Errors: []error{nil, a, b}}); !errors.As(err, &p) || p != b {
		t.Errorf("errors.As found %v, want the *PanicError", p)
	}
}
