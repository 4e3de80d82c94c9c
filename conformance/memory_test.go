package conformance

import (
	"testing"
	"time"

	"github.com/catchment-events/catchment/internal/deadfull"
	"github.com/catchment-events/catchment/provider/memory"
)

func memoryHarness() Harness {
	return Harness{
		Open: func(t *testing.T) Broker {
			b := memory.New(nil)
			t.Cleanup(func() { b.Close() })
			return b
		},
		OpenFull: func(t *testing.T) Broker {
			b := memory.New(&memory.Options{MaxEvents: 3})
			t.Cleanup(func() { b.Close() })
			for range 3 {
				if err := b.Publish(t.Context(), testEvent(t)); err != nil {
					t.Fatal(err)
				}
			}
			return b
		},
		OpenDiscarding: func(t *testing.T, events int) Broker {
			b := memory.New(&memory.Options{MaxEvents: events, DiscardOldest: true})
			t.Cleanup(func() { b.Close() })
			return b
		},
		OpenDeadFull: func(t *testing.T) (Broker, func()) {
			b := &deadfull.Broker{Bounded: memory.New(&memory.Options{MaxDeadLetters: 1})}
			t.Cleanup(func() { b.Close() })
			return b, func() {
				if err := b.Room(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
		Inject: func(t *testing.T, b Broker, header map[string][]string, body []byte) {
			if err := b.(*memory.Broker).Inject(header, body); err != nil {
				t.Fatal(err)
			}
		},
		Capabilities: OrderedPublish | Positions | ExactAttempts | ConfirmedAck | Fenced | Expires,
		Bubble:       true,
	}
}

func TestMemory(t *testing.T) { Run(t, memoryHarness()) }

// The suite on the clock that servers have.
func TestMemoryOnTheWallClock(t *testing.T) {
	if testing.Short() {
		t.Skip("the same suite again, in real time: left out by -short")
	}
	h := memoryHarness()
	h.Bubble = false
	h.AckWait = time.Second
	h.Slack = h.AckWait / 2
	h.Duplicates = time.Second
	h.Open = func(t *testing.T) Broker {
		b := memory.New(&memory.Options{Duplicates: h.Duplicates})
		t.Cleanup(func() { b.Close() })
		return b
	}
	Run(t, h)
}
