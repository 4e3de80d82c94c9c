package reactor_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

// TestConcurrency holds Run to as many handlers at once as there may be, no
// more and no fewer [RUN-2].
func TestConcurrency(t *testing.T) {
	for _, limit := range []int{0, 1, 2, 7, 64} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				var values []string
				for i := range 200 {
					values = append(values, fmt.Sprint(i))
				}
				added := src.add(values...)
				var g gauge
				r := start(t, src, func(context.Context, string) error {
					g.enter()
					defer g.leave()
					time.Sleep(time.Second)
					return nil
				}, &reactor.Options[string]{Concurrency: limit})
				want := max(limit, 1)
				synctest.Wait()
				if now, _ := g.read(); now != want {
					t.Errorf("%d handlers run, want %d", now, want)
				}
				time.Sleep(time.Duration(200/want+1) * time.Second)
				synctest.Wait()
				r.drain(t)
				if now, most := g.read(); now != 0 || most != want {
					t.Errorf("%d handlers run at the end, %d at most; want 0 and %d", now, most, want)
				}
				checkResult(t, reactor.Acked, added...)
			})
		})
	}
}

// TestOrderOfOne holds a Run of one handler to the order of the source [RUN-2].
func TestOrderOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		var want, got []string
		for i := range 1000 {
			want = append(want, fmt.Sprint(i))
		}
		src.add(want...)
		r := start(t, src, func(_ context.Context, v string) error {
			got = append(got, v)
			return nil
		}, nil)
		synctest.Wait()
		r.drain(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

// TestWorkersGrowAndShrink holds Run to goroutines as the work needs them: one
// when there is none, however high Concurrency is, and few after a burst.
func TestWorkersGrowAndShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Hour)
		var g gauge
		r := start(t, src, func(context.Context, string) error {
			g.enter()
			defer g.leave()
			time.Sleep(time.Second)
			return nil
		}, &reactor.Options[string]{Concurrency: 500})
		synctest.Wait()
		if n, _ := src.receiving.read(); n != 1 {
			t.Errorf("%d workers receive when idle, want one", n)
		}
		for range 3 {
			for i := range 1000 {
				src.add(fmt.Sprint(i))
			}
			synctest.Wait()
			if n, _ := g.read(); n != 500 {
				t.Errorf("%d workers in a burst, want 500", n)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if n, _ := src.receiving.read(); n > 16 {
				t.Errorf("%d workers receive after a burst, want at most 16", n)
			}
		}
		r.drain(t)
		if n, _ := src.receiving.read(); n != 0 {
			t.Errorf("%d workers receive after Run returned", n)
		}
	})
}

// TestSlowHandlerHoldsUpNoOther holds Run to a free slot for each value that
// comes while another handler is stuck.
func TestSlowHandlerHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		src.add("stuck")
		release := make(chan struct{})
		r := start(t, src, func(_ context.Context, v string) error {
			if v == "stuck" {
				<-release
			}
			return nil
		}, &reactor.Options[string]{Concurrency: 2})
		synctest.Wait()
		for i := range 10 {
			s := src.add(fmt.Sprint(i))
			synctest.Wait()
			checkResult(t, reactor.Acked, s...)
		}
		close(release)
		r.drain(t)
	})
}
