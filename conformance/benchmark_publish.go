package conformance

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// callers is how many publish at once, in the benchmark of that.
const callers = 64

func benchmarkPublish(b *testing.B, h Harness, bytes int) {
	measured(b, h, fmt.Sprintf("callers=%d", callers), bytes, func(s *speed) {
		s.rounds(callers*16, mostEvents(bytes), func(broker Broker, n int) {
			events := s.feed.fill(n)
			var err error
			s.measure(n, func() { err = publishAtOnce(s.ctx, broker, events) })
			s.ok(err, "publish")
		})
	})
	// One caller, and a batch of one, are the same.
	for _, batch := range []int{1, 100, 1000} {
		measured(b, h, fmt.Sprintf("batch=%d", batch), bytes, func(s *speed) {
			s.rounds(1000, mostEvents(bytes)/1000*1000, func(broker Broker, n int) {
				events := s.feed.fill(n)
				var err error
				s.measure(n, func() { err = publishBatches(s.ctx, broker, events, batch) })
				s.ok(err, "publish")
			})
		})
	}
}

// publishBatches publishes what the feed has in calls of so many.
func publishBatches(ctx context.Context, broker Broker, f *feed, batch int) error {
	for f.left() > 0 {
		if err := broker.Publish(ctx, f.take(batch)...); err != nil {
			return err
		}
	}
	return nil
}

// publishAtOnce publishes what the feed has one by one, each caller its share.
func publishAtOnce(ctx context.Context, broker Broker, f *feed) error {
	errs := make(chan error, callers)
	var wg sync.WaitGroup
	for _, mine := range f.split(callers) {
		wg.Go(func() { errs <- publishBatches(ctx, broker, mine, 1) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
