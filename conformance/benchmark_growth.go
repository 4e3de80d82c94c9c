package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// tail is how many events are measured at the end of a log.
const tail = 10_000

// benchmarkGrowth shows what grows with the log, and with the number of
// subscriptions.
func benchmarkGrowth(b *testing.B, h Harness) {
	for _, stored := range []int{10_000, 100_000, 1_000_000} {
		measured(b, h, fmt.Sprintf("events=%d", stored), smallData, func(s *speed) {
			if stored == 1_000_000 && testing.Short() {
				s.b.Skip("a log of a million events: left out by -short")
			}
			s.rounds(tail, tail, func(broker Broker, n int) { s.end(broker, stored, n) })
		})
	}
	for _, subscriptions := range []int{1, 10, 100, 1000} {
		measured(b, h, fmt.Sprintf("subscriptions=%d", subscriptions), smallData, func(s *speed) {
			s.rounds(1000, mostEvents(smallData), func(broker Broker, n int) {
				for i := range subscriptions {
					sub := messaging.Subscription{Name: fmt.Sprintf("%s-%d", speedName, i), Types: []string{speedType}}
					s.ok(s.subscribe(broker, 1, sub)[0].Close(), "close")
				}
				events := s.feed.fill(n)
				s.measure(n, func() { s.ok(publishBatches(s.ctx, broker, events, 1), "publish") })
			})
		})
	}
}

// end fills a log, publishes n events more, and consumes those.
func (s *speed) end(broker Broker, stored, n int) {
	began := time.Now()
	for i := 0; i < stored; i += ringSize {
		s.ok(broker.Publish(s.ctx, s.feed.fill(ringSize).take(ringSize)...), "publish")
		if time.Since(began) > time.Minute {
			s.b.Skipf("%d of %d events are stored after a minute: it takes too long", i+ringSize, stored)
		}
	}
	s.note("fill-ns/event", float64(time.Since(began).Nanoseconds())/float64(stored))
	sources := s.subscribe(broker, 1, messaging.Subscription{Name: speedName, Start: messaging.StartNew()})
	events := s.feed.fill(n)
	s.measure(n, func() { s.ok(publishBatches(s.ctx, broker, events, 100), "publish") })
	began = time.Now()
	s.ok(drain(s.ctx, sources, n, ack), "consume")
	s.note("consume-ns/event", float64(time.Since(began).Nanoseconds())/float64(n))
}
