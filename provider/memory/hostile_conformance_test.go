package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/internal/deadfull"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// TestHostileConformance holds hostile brokers to the contract. The suite takes
// it that no connection breaks and no process dies while it does not ask for
// it, so acks are not undone, no delivery vanishes and nothing is buried twice
// here; and it does not repeat what failed, so a client does that for it, which
// keeps the order of a call only if that has no gaps.
func TestHostileConformance(t *testing.T) {
	// One seed of three in each run: a hundred runs are to fit in ten minutes.
	seed := rand.Uint64N(3)
	t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
		hostile := &memory.Hostile{
			Seed: seed, Slow: 0.4, FailPublish: 0.3, Shuffle: 0.8, FailSettle: 0.3,
			PublishGaps: -1, UndoAck: -1, Vanish: -1, BuryTwice: -1,
		}
		open := func(o memory.Options) *persistent {
			o.Hostile = hostile
			return &persistent{memory.New(&o)}
		}
		conformance.Run(t, conformance.Harness{
			Open: func(t *testing.T) conformance.Broker { return open(memory.Options{}) },
			OpenFull: func(t *testing.T) conformance.Broker {
				b := open(memory.Options{MaxEvents: 1})
				want(t, b.Publish(t.Context(), newEvent(t, "full")))
				return b
			},
			OpenDiscarding: func(t *testing.T, events int) conformance.Broker {
				return open(memory.Options{MaxEvents: events, DiscardOldest: true})
			},
			OpenDeadFull: func(t *testing.T) (conformance.Broker, func()) {
				b := &deadfull.Broker{Bounded: open(memory.Options{MaxDeadLetters: 1})}
				return b, func() { want(t, b.Room(t.Context())) }
			},
			Inject: func(t *testing.T, b conformance.Broker, header map[string][]string, body []byte) {
				want(t, b.(*persistent).Inject(header, body))
			},
			Capabilities: conformance.Positions | conformance.Fenced | conformance.Expires,
			Bubble:       true,
			AckWait:      5 * time.Second,
			Slack:        80 * time.Millisecond, // four times MaxDelay
		})
	})
}

// persistent is a client that repeats what failed, as the contract says that it
// may, while the context lives, or whatever it does if it had ended before.
type persistent struct{ *memory.Broker }

func (p *persistent) Publish(ctx context.Context, events ...event.Event) error {
	for {
		err := p.Broker.Publish(ctx, events...)
		if err == nil || !errors.Is(err, messaging.ErrUnknown) || ctx.Err() != nil {
			return err
		}
	}
}

func (p *persistent) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	src, err := p.Broker.Subscribe(ctx, sub, report)
	if err != nil {
		return nil, err
	}
	return persistentSource{src}, nil
}

type persistentSource struct{ messaging.Source }

func (p persistentSource) Receive(ctx context.Context) (*messaging.Delivery, error) {
	d, err := p.Source.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return reactor.NewDelivery(d.Value, d.Info, d.Deadline(), persistentSettler{d}), nil
}

type persistentSettler struct{ d *messaging.Delivery }

func (p persistentSettler) Settle(ctx context.Context, o reactor.Outcome) error {
	ended := ctx.Err() != nil
	for {
		err := p.d.Settle(ctx, o)
		if err == nil || errors.Is(err, reactor.ErrLost) || errors.Is(err, reactor.ErrSettled) {
			return err
		}
		if !ended && ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

func (p persistentSettler) Extend(ctx context.Context) (deadline time.Time, err error) {
	for {
		deadline, err = p.d.Extend(ctx)
		if err == nil || errors.Is(err, reactor.ErrLost) || errors.Is(err, reactor.ErrSettled) || ctx.Err() != nil {
			return deadline, err
		}
	}
}
