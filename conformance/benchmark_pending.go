package conformance

import (
	"runtime"
	"testing"

	"github.com/catchment-events/catchment/messaging"
)

// benchmarkPending weighs events in the log, and those that a member holds.
func benchmarkPending(b *testing.B, h Harness, bytes int) {
	measured(b, h, "heap", bytes, func(s *speed) {
		const held = messaging.DefaultMaxInFlight / 2
		s.rounds(1<<13, 1<<13, func(broker Broker, n int) {
			sources := s.subscribe(broker, 1, messaging.Subscription{Name: speedName})
			events := s.feed.fill(n)
			before := heap()
			s.measure(n, func() { s.ok(publishBatches(s.ctx, broker, events, ringSize), "publish") })
			stored := heap()
			s.note("B/pending", (stored-before)/float64(n))

			deliveries := make([]*messaging.Delivery, held)
			for i := range deliveries {
				d, err := sources[0].Receive(s.ctx)
				s.ok(err, "receive")
				deliveries[i] = d
			}
			s.note("B/held", (heap()-stored)/held)
			for _, d := range deliveries {
				s.ok(d.Ack(s.ctx), "ack")
			}
			runtime.KeepAlive(events.ids)
		})
	})
}
