package reactor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// TestOptionsOutOfRange holds Run to refusing what it cannot do, naming the
// field, and to closing the source even so.
func TestOptionsOutOfRange(t *testing.T) {
	nothing := func(context.Context, string) error { return nil }
	tests := []struct {
		name string
		opts *reactor.Options[string]
		h    reactor.Handler[string]
		want string
	}{
		{"Concurrency", &reactor.Options[string]{Concurrency: -1}, nothing, "Concurrency is -1"},
		{"DrainTimeout", &reactor.Options[string]{DrainTimeout: -time.Second}, nothing, "DrainTimeout is -1s"},
		{"handler", nil, nil, "handler is nil"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				src.closeErr = errors.New("stuck")
				s := src.add("a")[0]
				err := reactor.Run(t.Context(), src, test.h, test.opts)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("Run returned %v, want %q", err, test.want)
				}
				if !errors.Is(err, src.closeErr) {
					t.Errorf("Run returned %v, want the error of Close beside it", err)
				}
				src.checkClosed(t, time.Now())
				checkResult(t, 0, s)
			})
		})
	}
}

// TestOptionsAreRead holds Run to leaving its options as they are.
func TestOptionsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		opts := &reactor.Options[string]{}
		r := start(t, src, sleepFor(0), opts)
		synctest.Wait()
		r.drain(t)
		if opts.Concurrency != 0 || opts.DrainTimeout != 0 || opts.Backoff != nil || opts.Observer != nil {
			t.Errorf("Run changed its options to %+v", opts)
		}
	})
}
