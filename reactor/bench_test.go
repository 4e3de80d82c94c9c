package reactor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// tap is a source that never runs dry until it has handed out n deliveries,
// and whose settles cost nothing.
type tap struct{ left atomic.Int64 }

func (s *tap) Receive(context.Context) (*reactor.Delivery[int], error) {
	if s.left.Add(-1) < 0 {
		return nil, reactor.ErrClosed
	}
	return reactor.NewDelivery(0, reactor.Info{Attempt: 1}, time.Now().Add(time.Minute), s), nil
}

func (s *tap) Close() error                                  { return nil }
func (s *tap) Settle(context.Context, reactor.Outcome) error { return nil }
func (s *tap) Extend(context.Context) (time.Time, error)     { return time.Now().Add(time.Minute), nil }

// BenchmarkRun is what Run costs for each delivery: compare with
// BenchmarkReceiveAck, which does without.
func BenchmarkRun(b *testing.B) {
	for _, concurrency := range []int{1, 16, 1024} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			b.ReportAllocs()
			src := &tap{}
			src.left.Store(int64(b.N))
			b.ResetTimer()
			_ = reactor.Run(b.Context(), src, func(context.Context, int) error { return nil },
				&reactor.Options[int]{Concurrency: concurrency})
		})
	}
}

func BenchmarkReceiveAck(b *testing.B) {
	b.ReportAllocs()
	src := &tap{}
	src.left.Store(1 << 62)
	for b.Loop() {
		d, err := src.Receive(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Ack(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExponential(b *testing.B) {
	backoff := reactor.Exponential(100*time.Millisecond, time.Minute)
	attempt := 0
	for b.Loop() {
		attempt++
		backoff(attempt)
	}
}
