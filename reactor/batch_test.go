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

// startBatch is start for RunBatch.
func startBatch(t *testing.T, src reactor.Source[string], h reactor.BatchHandler[string], opts *reactor.Options[string]) *running {
	return startFunc(t, func(ctx context.Context) error { return reactor.RunBatch(ctx, src, h, opts) })
}

// valuesOf is the values of a batch.
func valuesOf(batch []*reactor.Delivery[string]) string {
	var values []string
	for _, d := range batch {
		values = append(values, d.Value)
	}
	return strings.Join(values, " ")
}

// TestBatch holds RunBatch to when a batch is complete.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		j := newJournal()
		r := startBatch(t, src, func(ctx context.Context, batch []*reactor.Delivery[string]) error {
			if info := reactor.InfoFrom(ctx); info.Attempt != 0 {
				t.Errorf("the context carries %+v, want no Info", info)
			}
			j.add("%s", valuesOf(batch))
			return nil
		}, &reactor.Options[string]{BatchSize: 3, BatchWait: time.Second})
		added := src.add("1", "2", "3", "4", "5")
		time.Sleep(time.Minute)
		added = append(added, src.add("6")...)
		time.Sleep(time.Second - 1)
		added = append(added, src.add("7")...)
		time.Sleep(time.Second)
		added = append(added, src.add("8", "9", "10")...)
		synctest.Wait()
		want := []string{"0s 1 2 3", "1s 4 5", "1m1s 6 7", "1m1.999999999s 8 9 10"}
		if diff := cmp.Diff(want, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
		r.drain(t)
		checkResult(t, reactor.Acked, added...)
	})
}

// TestBatchDefaults holds RunBatch to a hundred values, and 100 ms.
func TestBatchDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		for i := range 150 {
			src.add(fmt.Sprint(i))
		}
		j := newJournal()
		r := startBatch(t, src, func(_ context.Context, batch []*reactor.Delivery[string]) error {
			j.add("%d", len(batch))
			return nil
		}, nil)
		time.Sleep(time.Second)
		r.drain(t)
		if diff := cmp.Diff([]string{"0s 100", "100ms 50"}, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

// TestBatchConcurrency holds RunBatch to as many batches at once as there may
// be, and to one that collects [RUN-2].
func TestBatchConcurrency(t *testing.T) {
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				var added []*settler
				for i := range 100 {
					added = append(added, src.add(fmt.Sprint(i))...)
				}
				var g gauge
				r := startBatch(t, src, func(context.Context, []*reactor.Delivery[string]) error {
					g.enter()
					defer g.leave()
					time.Sleep(time.Second)
					return nil
				}, &reactor.Options[string]{Concurrency: limit, BatchSize: 5})
				synctest.Wait()
				if now, _ := g.read(); now != limit {
					t.Errorf("%d handlers run, want %d", now, limit)
				}
				if n := len(src.in); n != 100-5*limit {
					t.Errorf("%d values are left, want %d", n, 100-5*limit)
				}
				time.Sleep(time.Minute)
				r.drain(t)
				if _, most := src.receiving.read(); most != 1 {
					t.Errorf("%d received at once, want one", most)
				}
				if _, most := g.read(); most != limit {
					t.Errorf("%d handlers ran at once, want %d", most, limit)
				}
				checkResult(t, reactor.Acked, added...)
			})
		})
	}
}

// TestBatchOutcome holds RunBatch to what a handler's error makes of each
// delivery [RUN-1].
func TestBatchOutcome(t *testing.T) {
	backoff := reactor.Outcome{Result: reactor.Retried, After: 7 * time.Second, Reason: "boom"}
	acked := reactor.Outcome{Result: reactor.Acked}
	rejected := reactor.Outcome{Result: reactor.Rejected, Reason: "boom"}
	later := reactor.Outcome{Result: reactor.Retried, After: time.Minute, Reason: "boom"}
	each := &reactor.BatchError{Errors: []error{nil, errBoom, reactor.Reject(errBoom), reactor.RetryAfter(errBoom, time.Minute)}}
	tests := []struct {
		name string
		err  error
		want []reactor.Outcome
	}{
		{"nil acks all", nil, []reactor.Outcome{acked, acked, acked, acked}},
		{"an error retries all", errBoom, []reactor.Outcome{backoff, backoff, backoff, backoff}},
		{"Reject rejects all", reactor.Reject(errBoom), []reactor.Outcome{rejected, rejected, rejected, rejected}},
		{"RetryAfter retries all", reactor.RetryAfter(errBoom, time.Minute), []reactor.Outcome{later, later, later, later}},
		{"one for each", each, []reactor.Outcome{acked, backoff, rejected, later}},
		{"one for each, wrapped", fmt.Errorf("insert: %w", each), []reactor.Outcome{acked, backoff, rejected, later}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				added := src.add("1", "2", "3", "4")
				r := startBatch(t, src, func(context.Context, []*reactor.Delivery[string]) error { return test.err },
					&reactor.Options[string]{BatchSize: 4, Backoff: func(int) time.Duration { return 7 * time.Second }})
				synctest.Wait()
				r.drain(t)
				var got []reactor.Outcome
				for _, s := range added {
					got = append(got, s.outcome())
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("outcomes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestBatchErrorOfOtherLength holds RunBatch to retrying all when it cannot know
// which error is whose, whatever they are.
func TestBatchErrorOfOtherLength(t *testing.T) {
	for _, errs := range [][]error{nil, {reactor.Reject(errBoom)}, {nil, nil, nil, reactor.RetryAfter(errBoom, time.Hour)}} {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(time.Minute)
			added := src.add("1", "2", "3")
			r := startBatch(t, src, func(context.Context, []*reactor.Delivery[string]) error {
				return &reactor.BatchError{Errors: errs}
			}, &reactor.Options[string]{BatchSize: 3, Backoff: func(int) time.Duration { return 7 * time.Second }})
			synctest.Wait()
			r.drain(t)
			for _, s := range added {
				o := s.outcome()
				if o.Result != reactor.Retried || o.After != 7*time.Second || !strings.Contains(o.Reason, fmt.Sprintf("with %d errors for a batch of 3", len(errs))) {
					t.Errorf("%s was settled with %+v, want retried after the backoff, and a reason", s.value, o)
				}
			}
		})
	}
}

// TestBatchSettlesItself holds RunBatch to leaving alone what the handler has
// settled, also when it fails then.
func TestBatchSettlesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		added := src.add("1", "2", "3")
		var told []string
		r := startBatch(t, src, func(ctx context.Context, batch []*reactor.Delivery[string]) error {
			if err := batch[1].Reject(ctx, "bad"); err != nil {
				t.Errorf("Reject returned %v", err)
			}
			time.Sleep(58 * time.Second)
			if err := ctx.Err(); err != nil {
				t.Errorf("the context ended with %v", context.Cause(ctx))
			}
			return errBoom
		}, &reactor.Options[string]{BatchSize: 3, Observer: &reactor.Observer[string]{
			Settled: func(v string, _ reactor.Info, s reactor.Settlement) {
				told = append(told, fmt.Sprint(v, " ", s.Outcome.Result, " ", s.Err))
			},
		}})
		time.Sleep(2 * time.Minute)
		r.drain(t)
		if diff := cmp.Diff([]string{"1 retried <nil>", "3 retried <nil>"}, told); diff != "" {
			t.Errorf("the observer was told of (-want +got):\n%s", diff)
		}
		checkResult(t, reactor.Retried, added[0], added[2])
		checkResult(t, reactor.Rejected, added[1])
		if n := len(added[1].tried(time.Now())); n != 1 {
			t.Errorf("what the handler rejected was settled %d times, want once", n)
		}
		if n := len(added[0].extended(time.Now())); n != 11 {
			t.Errorf("a delivery was extended %d times in 58s, want 11", n)
		}
	})
}

// TestBatchLost holds RunBatch to ending a handler's context when one delivery is
// lost, and to releasing the others that it fails then [RUN-5].
func TestBatchLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(10 * time.Second)
		added := src.add("1")
		added = append(added, src.put(&settler{value: "2", onBeat: func(context.Context, int) error { return reactor.ErrLost }}))
		added = append(added, src.add("3", "4")...)
		began := time.Now()
		var cause error
		var told time.Duration
		r := startBatch(t, src, func(ctx context.Context, _ []*reactor.Delivery[string]) error {
			<-ctx.Done()
			cause, told = context.Cause(ctx), time.Since(began)
			return &reactor.BatchError{Errors: []error{ctx.Err(), ctx.Err(), nil, reactor.Reject(errBoom)}}
		}, &reactor.Options[string]{BatchSize: 4})
		time.Sleep(time.Minute)
		r.drain(t)
		if !errors.Is(cause, reactor.ErrLost) || told != 5*time.Second {
			t.Errorf("the handler was told after %v of %v, want 5s, ErrLost", told, cause)
		}
		checkResult(t, reactor.Released, added[0])
		checkResult(t, 0, added[1])
		checkResult(t, reactor.Acked, added[2])
		checkResult(t, reactor.Rejected, added[3])
	})
}

// TestBatchLostWhileCollecting holds RunBatch to leaving out of a batch what was
// lost before there was enough, and to a context that is none the worse for it.
func TestBatchLostWhileCollecting(t *testing.T) {
	lost := func(context.Context, int) error { return reactor.ErrLost }
	for name, values := range map[string][]string{"others": {"1", "lost", "3"}, "none": {"lost", "lost"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(10 * time.Second)
				var kept []*settler
				var want, got []string
				for _, v := range values {
					s := &settler{value: v}
					if v == "lost" {
						s.onBeat = lost
					} else {
						kept, want = append(kept, s), append(want, v)
					}
					src.put(s)
				}
				var ended error
				opts := &reactor.Options[string]{BatchSize: 10, BatchWait: 8 * time.Second}
				r := startBatch(t, src, func(ctx context.Context, batch []*reactor.Delivery[string]) error {
					for _, d := range batch {
						got = append(got, d.Value)
					}
					ended = context.Cause(ctx)
					return nil
				}, opts)
				time.Sleep(time.Minute)
				r.drain(t)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the handler was called with (-want +got):\n%s", diff)
				}
				if ended != nil {
					t.Errorf("the handler's context had ended: %v", ended)
				}
				checkResult(t, reactor.Acked, kept...)
			})
		})
	}
}

// TestBatchOptions holds Run and RunBatch to refusing what is for the other, and
// what is out of range, and to closing the source even so.
func TestBatchOptions(t *testing.T) {
	one := func(context.Context, string) error { return nil }
	all := func(context.Context, []*reactor.Delivery[string]) error { return nil }
	tests := []struct {
		name  string
		batch bool
		h     reactor.BatchHandler[string]
		opts  reactor.Options[string]
		want  string
	}{
		{"Key", true, all, reactor.Options[string]{Key: keyOf}, "Key is for Run"},
		{"handler", true, nil, reactor.Options[string]{}, "handler is nil"},
		{"BatchSize", true, all, reactor.Options[string]{BatchSize: -1}, "BatchSize is -1"},
		{"BatchWait", true, all, reactor.Options[string]{BatchWait: -1}, "BatchWait is -1ns"},
		{"IdleTimeout", true, all, reactor.Options[string]{IdleTimeout: -1}, "IdleTimeout is -1ns"},
		{"BatchSize of Run", false, nil, reactor.Options[string]{BatchSize: 1}, "for RunBatch"},
		{"BatchWait of Run", false, nil, reactor.Options[string]{BatchWait: 1}, "for RunBatch"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				src.closeErr = errors.New("stuck")
				var err error
				if test.batch {
					err = reactor.RunBatch(t.Context(), src, test.h, &test.opts)
				} else {
					err = reactor.Run(t.Context(), src, one, &test.opts)
				}
				if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, src.closeErr) {
					t.Errorf("it returned %v, want %q and the error of Close", err, test.want)
				}
				src.checkClosed(t, time.Now())
			})
		})
	}
}
