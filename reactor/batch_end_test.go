package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// TestBatchPanic holds RunBatch to a handler that panics, or ends its goroutine:
// the batch is retried, and the others are drained [RUN-6].
func TestBatchPanic(t *testing.T) {
	for name, quit := range map[string]func(){
		"panic":  func() { explode(errBoom) },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				slow := src.add("slow", "slow")
				bad := src.add("bad", "bad")
				began := time.Now()
				r := startBatch(t, src, func(_ context.Context, batch []*reactor.Delivery[string]) error {
					if batch[0].Value == "bad" {
						time.Sleep(time.Second)
						quit()
					}
					time.Sleep(10 * time.Second)
					return nil
				}, &reactor.Options[string]{Concurrency: 2, BatchSize: 2})
				r.wait()
				p, ok := r.panic.(*reactor.PanicError)
				if name == "panic" && (!ok || !strings.Contains(string(p.Stack), "reactor_test.explode")) {
					t.Errorf("RunBatch panicked with %v, want a *PanicError with the handler's stack", r.panic)
				}
				if name == "goexit" && !r.quit {
					t.Errorf("RunBatch returned %v, want its goroutine ended", r.err)
				}
				checkResult(t, reactor.Acked, slow...)
				checkResult(t, reactor.Retried, bad...)
				src.checkClosed(t, began.Add(10*time.Second))
			})
		})
	}
}

// TestBatchEndsWhileCollecting holds RunBatch to releasing what it has of a batch
// when it is told to stop, or the source ends [RUN-3, RUN-8].
func TestBatchEndsWhileCollecting(t *testing.T) {
	gone := errors.New("gone")
	for _, want := range []error{nil, gone} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(10 * time.Second)
				added := src.add("1", "2")
				r := startBatch(t, src, func(context.Context, []*reactor.Delivery[string]) error {
					t.Error("the handler was called")
					return nil
				}, &reactor.Options[string]{BatchSize: 3, BatchWait: time.Hour})
				time.Sleep(time.Minute)
				checkResult(t, 0, added...)
				if n := len(added[0].extended(time.Now())); n < 11 {
					t.Errorf("a delivery was extended %d times in a minute, want 11", n)
				}
				if want != nil {
					src.end(want)
				} else {
					r.stop()
				}
				synctest.Wait()
				src.checkClosed(t, time.Now())
				if err := r.wait(); !errors.Is(err, want) {
					t.Errorf("RunBatch returned %v, want %v", err, want)
				}
				checkResult(t, reactor.Released, added...)
			})
		})
	}
}

// TestBatchDrainTimeout holds RunBatch to cutting its handlers off, and to what
// becomes of what they fail then [RUN-3].
func TestBatchDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		added := src.add("1", "2", "3")
		began := time.Now()
		var cause error
		r := startBatch(t, src, func(ctx context.Context, _ []*reactor.Delivery[string]) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return &reactor.BatchError{Errors: []error{nil, ctx.Err(), reactor.Reject(ctx.Err())}}
		}, &reactor.Options[string]{BatchSize: 3, DrainTimeout: 5 * time.Second})
		synctest.Wait()
		r.drain(t)
		if !errors.Is(cause, reactor.ErrDrainTimeout) {
			t.Errorf("the handler was cut off by %v, want ErrDrainTimeout", cause)
		}
		src.checkClosed(t, began.Add(5*time.Second))
		checkResult(t, reactor.Acked, added[0])
		checkResult(t, reactor.Released, added[1], added[2])
	})
}

// TestBatchSettleHangs holds RunBatch to one grace for a batch that is late, not
// one for each of its deliveries.
func TestBatchSettleHangs(t *testing.T) {
	for name, end := range map[string]func(){
		"returns": func() {},
		"panics":  func() { panic("boom") },
		"exits":   runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(0)
				for i := range 100 {
					b.publish(fmt.Sprint(i))
				}
				b.hang()
				r := startBatch(t, b, func(context.Context, []*reactor.Delivery[string]) error {
					time.Sleep(time.Minute)
					end()
					return nil
				}, &reactor.Options[string]{DrainTimeout: 10 * time.Second})
				synctest.Wait()
				began := time.Now()
				r.stop()
				<-r.ended
				if took := time.Since(began); took > 70*time.Second {
					t.Errorf("RunBatch drained for %v, want a minute, and a short grace", took)
				}
				if r.err != nil || (r.panic != nil) != (name == "panics") || r.quit != (name == "exits") {
					t.Errorf("RunBatch returned %v, panicked with %v, exited: %v", r.err, r.panic, r.quit)
				}
			})
		})
	}
}

// TestBatchPaused holds a Reactor to giving back what it has of a batch when it
// is paused.
func TestBatchPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		var mu sync.Mutex
		var handled []string
		react := reactor.NewBatch("r", opens(src), func(_ context.Context, batch []*reactor.Delivery[string]) error {
			mu.Lock()
			defer mu.Unlock()
			handled = append(handled, valuesOf(batch))
			return nil
		}, &reactor.Options[string]{BatchSize: 3, BatchWait: time.Minute})
		r := startFunc(t, react.Run)
		early := src.add("1", "2")
		synctest.Wait()
		if err := react.Pause(t.Context()); err != nil {
			t.Errorf("Pause returned %v", err)
		}
		synctest.Wait()
		checkResult(t, reactor.Released, early...)
		react.Resume()
		late := src.add("3", "4", "5")
		synctest.Wait()
		checkResult(t, reactor.Acked, late...)
		r.drain(t)
		if diff := cmp.Diff([]string{"3 4 5"}, handled); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

// TestBatchIdle holds RunBatch to no end by IdleTimeout while it collects.
func TestBatchIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		added := src.add("1", "2")
		began := time.Now()
		r := startBatch(t, src, func(context.Context, []*reactor.Delivery[string]) error { return nil },
			&reactor.Options[string]{BatchWait: 10 * time.Second, IdleTimeout: 3 * time.Second})
		if err := r.wait(); err != nil {
			t.Errorf("RunBatch returned %v, want nil", err)
		}
		if took := time.Since(began); took != 13*time.Second {
			t.Errorf("RunBatch ended after %v, want 13s", took)
		}
		checkResult(t, reactor.Acked, added...)
	})
}

// TestBatchSourceEndsAway ends a source that does not take back what was collected
// by then: that is bounded as in any drain, and the source's error is returned.
func TestBatchSourceEndsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		fails := func(context.Context, int) error { return gone }
		src := newFake(time.Hour)
		src.put(&settler{value: "a", onTry: fails, onBeat: fails})
		r := startFunc(t, func(ctx context.Context) error {
			return reactor.RunBatch(ctx, src, func(context.Context, []*reactor.Delivery[string]) error { return nil },
				&reactor.Options[string]{BatchWait: time.Minute, DrainTimeout: time.Second})
		})
		time.Sleep(time.Second)
		began := time.Now()
		src.end(gone)
		err := r.wait()
		if took := time.Since(began); !errors.Is(err, gone) || took > 6*time.Second {
			t.Errorf("Run returned %v after %v, want %v after 1s and a grace of 5s at most", err, took, gone)
		}
	})
}
