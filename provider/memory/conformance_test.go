package memory_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
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
			b := &deadFull{adminBroker: memory.New(&memory.Options{MaxDeadLetters: 1})}
			return b, func() { b.room(t) }
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

type adminBroker interface {
	conformance.Broker
	messaging.Admin
}

// deadFull puts a dead letter of its own into each new subscription, which
// fills its dead letters until room is called.
type deadFull struct {
	adminBroker
	mu     sync.Mutex
	filled []string // under mu
}

func (b *deadFull) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	if sub.DeadLettersOf == "" {
		if _, err := b.Undecodable(ctx, sub.Name); err != nil { // there is none by that name
			if err := b.fill(ctx, sub); err != nil {
				return nil, err
			}
		}
	}
	return b.adminBroker.Subscribe(ctx, sub, report)
}

func (b *deadFull) fill(ctx context.Context, sub messaging.Subscription) error {
	src, err := b.adminBroker.Subscribe(ctx, sub, nil)
	if err != nil {
		return err
	}
	defer src.Close()
	filler, err := event.New("/filler", "filler", nil)
	if err != nil {
		return err
	}
	if err := b.Publish(ctx, filler); err != nil {
		return err
	}
	d, err := src.Receive(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filled = append(b.filled, sub.Name)
	return d.Reject(ctx, "to fill the dead letters")
}

func (b *deadFull) room(t *testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.filled {
		_, err := b.DeleteDeadLetters(t.Context(), name)
		want(t, err)
	}
}
