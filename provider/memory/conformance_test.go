package memory_test

import (
	"testing"
	"time"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/internal/deadfull"
	"github.com/catchment-events/catchment/provider/memory"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		Open: func(t *testing.T) conformance.Broker { return memory.New(nil) },
		OpenFull: func(t *testing.T) conformance.Broker {
			b := memory.New(&memory.Options{MaxEvents: 1})
			publish(t, b, "full")
			return b
		},
		OpenDiscarding: func(t *testing.T, events int) conformance.Broker {
			return memory.New(&memory.Options{MaxEvents: events, DiscardOldest: true})
		},
		OpenDeadFull: func(t *testing.T) (conformance.Broker, func()) {
			b := &deadfull.Broker{Bounded: memory.New(&memory.Options{MaxDeadLetters: 1})}
			return b, func() { want(t, b.Room(t.Context())) }
		},
		Inject: func(t *testing.T, b conformance.Broker, header map[string][]string, body []byte) {
			want(t, b.(*memory.Broker).Inject(header, body))
		},
		Capabilities: conformance.OrderedPublish | conformance.Positions | conformance.ExactAttempts |
			conformance.ConfirmedAck | conformance.Fenced | conformance.Expires,
		Bubble:  true,
		AckWait: time.Second,
	})
}
