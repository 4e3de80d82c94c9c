package reactor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// TestSourceEnds holds Run to returning the error of a source that ends by
// itself, after a drain [RUN-8].
func TestSourceEnds(t *testing.T) {
	gone := errors.New("gone")
	for _, want := range []error{gone, reactor.ErrClosed, context.Canceled} {
		t.Run(want.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				s := src.add("a")[0]
				began := time.Now()
				r := start(t, src, func(ctx context.Context, _ string) error {
					time.Sleep(10 * time.Second)
					return ctx.Err()
				}, &reactor.Options[string]{Concurrency: 8})
				synctest.Wait()
				src.end(want)
				if err := r.wait(); !errors.Is(err, want) {
					t.Errorf("Run returned %v, want %v", err, want)
				}
				checkResult(t, reactor.Acked, s)
				src.checkClosed(t, began.Add(10*time.Second))
			})
		})
	}
}

// TestSourceEndsAfterStop holds Run to nil when ctx has ended before the
// source did [RUN-8].
func TestSourceEndsAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.add("a")
		r := start(t, src, sleepFor(10*time.Second), &reactor.Options[string]{Concurrency: 2})
		synctest.Wait()
		r.stop()
		synctest.Wait()
		src.end(errors.New("gone"))
		if err := r.wait(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	})
}

// TestCloseFails holds Run to returning what closing the source failed with,
// beside what it ended with.
func TestCloseFails(t *testing.T) {
	gone, stuck := errors.New("gone"), errors.New("stuck")
	for _, end := range []error{nil, gone} {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(time.Minute)
			src.closeErr = stuck
			r := start(t, src, sleepFor(0), nil)
			synctest.Wait()
			if end != nil {
				src.end(end)
			} else {
				r.stop()
			}
			err := r.wait()
			if !errors.Is(err, stuck) || end != nil && !errors.Is(err, end) {
				t.Errorf("Run returned %v, want %v and %v", err, stuck, end)
			}
		})
	}
}
