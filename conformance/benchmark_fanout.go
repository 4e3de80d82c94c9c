package conformance

import (
	"fmt"
	"testing"

	"github.com/catchment-events/catchment/messaging"
)

// benchmarkFanout publishes to many subscriptions, each with a member at work.
func benchmarkFanout(b *testing.B, h Harness) {
	for _, subscriptions := range []int{1, 10, 100, 1000} {
		measured(b, h, fmt.Sprintf("subscriptions=%d", subscriptions), smallData, func(s *speed) {
			s.unit = "delivery"
			s.rounds(max(10, 1000/subscriptions), mostEvents(smallData)/subscriptions, func(broker Broker, n int) {
				var sources []messaging.Source
				for i := range subscriptions {
					sub := messaging.Subscription{Name: fmt.Sprintf("%s-%d", speedName, i)}
					sources = append(sources, s.subscribe(broker, 1, sub)...)
				}
				all := func(n int) {
					ended := make(chan error, subscriptions)
					for i := range sources {
						go func() { ended <- drain(s.ctx, sources[i:i+1], n, ack) }()
					}
					s.ok(publishBatches(s.ctx, broker, s.feed, 1), "publish")
					for range sources {
						s.ok(<-ended, "consume")
					}
				}
				s.feed.fill(1)
				all(1) // members set up what they need at their first Receive
				s.feed.fill(n)
				s.measure(n*subscriptions, func() { all(n) })
			})
		})
	}
}
