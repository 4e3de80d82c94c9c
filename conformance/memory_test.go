package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
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
			b := &deadFull{Broker: memory.New(&memory.Options{MaxDeadLetters: 1})}
			t.Cleanup(func() { b.Close() })
			return b, func() { b.room(t) }
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

// deadFull puts a dead letter of its own into each new subscription, which fills
// its dead letters, until room is called.
type deadFull struct {
	*memory.Broker
	mu     sync.Mutex
	filled map[string]bool // under mu
}

func (b *deadFull) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sub.DeadLettersOf == "" && !b.filled[sub.Name] {
		src, err := b.Broker.Subscribe(ctx, sub, report)
		if err != nil {
			return nil, err
		}
		defer src.Close()
		filler, err := event.New("/filler", "filler", nil)
		if err == nil {
			err = b.Publish(ctx, filler)
		}
		if err != nil {
			return nil, err
		}
		d, err := src.Receive(ctx)
		if err == nil {
			err = d.Reject(ctx, "to fill the dead letters")
		}
		if err != nil {
			return nil, err
		}
		if b.filled == nil {
			b.filled = make(map[string]bool)
		}
		b.filled[sub.Name] = true
	}
	return b.Broker.Subscribe(ctx, sub, report)
}

func (b *deadFull) room(t *testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.filled {
		if _, err := b.DeleteDeadLetters(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}

func TestMemory(t *testing.T) { Run(t, memoryHarness()) }

// The suite on the clock that servers have.
func TestMemoryOnTheWallClock(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
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
