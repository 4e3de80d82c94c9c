package reactor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// TestLeaseOfAnySpan holds Run to extending each delivery in time, and not long
// before, also when it lasts much longer or shorter than those around it, or comes
// just before Run looks at those [RUN-4].
func TestLeaseOfAnySpan(t *testing.T) {
	const long, short = 30 * time.Second, time.Second
	type delivery struct {
		at, ackWait time.Duration
	}
	for _, tt := range []struct {
		name  string
		given []delivery
	}{
		{"short after long", []delivery{{0, long}, {100 * time.Millisecond, short}, {200 * time.Millisecond, long}, {5 * time.Second, short}}},
		{"long after short", []delivery{{0, short}, {100 * time.Millisecond, long}, {110 * time.Millisecond, short}, {400 * time.Millisecond, long}}},
		{"just before a look", []delivery{{0, long}, {15*time.Second - 1, long}, {15*time.Second - 1, short}}},
		{"just after a look", []delivery{{0, long}, {15*time.Second + 1, long}, {15*time.Second + 1, short}}},
		{"after a pause", []delivery{{0, short}, {time.Hour, long}, {time.Hour, short}, {2 * time.Hour, short}}},
		{"about to be lost", []delivery{{0, long}, {time.Second, time.Nanosecond}, {time.Second, long}, {time.Second, short}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(long)
				r := start(t, src, sleepFor(25*time.Second), &reactor.Options[string]{Concurrency: 100})
				began := time.Now()
				var came []*settler
				for _, d := range tt.given {
					time.Sleep(time.Until(began.Add(d.at)))
					s := &settler{value: "a", info: reactor.Info{Attempt: 1}, ackWait: d.ackWait}
					if d.ackWait < short { // nobody could
						s.onBeat = func(context.Context, int) error { return reactor.ErrLost }
					}
					src.in <- s
					came = append(came, s)
					synctest.Wait()
				}
				time.Sleep(time.Hour)
				r.drain(t)
				for i, d := range tt.given {
					if d.ackWait < short {
						continue
					}
					extended := came[i].extended(began.Add(d.at))
					if len(extended) == 0 {
						t.Errorf("delivery %d, after %v for %v, was not extended", i, d.at, d.ackWait)
						continue
					}
					if at := extended[0]; at > d.ackWait/2 || at < d.ackWait/4 {
						t.Errorf("delivery %d, after %v for %v, was first extended after %v, want between %v and %v",
							i, d.at, d.ackWait, at, d.ackWait/4, d.ackWait/2)
					}
					checkResult(t, reactor.Acked, came[i])
				}
			})
		})
	}
}
