package conformance

import (
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// warm is how many events go before those whose latency is measured: the first
// ones wait for what a member sets up.
const warm = 10

// benchmarkLatency publishes an event when the one before is acked.
func benchmarkLatency(b *testing.B, h Harness, bytes int) {
	measured(b, h, "one-in-flight", bytes, func(s *speed) {
		s.rounds(100, 10_000, func(broker Broker, n int) {
			sources := s.subscribe(broker, 1, messaging.Subscription{Name: speedName})
			type arrival struct {
				at  time.Time
				err error
			}
			arrived := make(chan arrival) // after the ack
			go func() {
				for range warm + n {
					d, err := sources[0].Receive(s.ctx)
					at := time.Now()
					if err == nil {
						err = d.Ack(s.ctx)
					}
					arrived <- arrival{at, err}
					if err != nil {
						return
					}
				}
			}()
			events := s.feed.fill(warm + n)
			one := func() time.Duration {
				e := events.take(1)[0]
				began := time.Now()
				s.ok(broker.Publish(s.ctx, e), "publish")
				a := <-arrived
				s.ok(a.err, "receive and ack")
				return a.at.Sub(began)
			}
			for range warm {
				one()
			}
			s.measure(n, func() {
				for range n {
					s.samples = append(s.samples, one())
				}
			})
		})
	})
}
