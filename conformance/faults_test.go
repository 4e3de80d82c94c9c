package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// A fault is something that a broker does wrong, and the requirements that the
// suite has to find broken.
type fault struct {
	name    string
	breaks  string // IDs, or checks: ID/name
	options memory.Options
	wrap    func(*bent)
	harness func(*Harness)
	restart func(*memory.Broker) *memory.Broker // makes the broker durable, but for what this does
}

// allFaults are the faults, which stand with what they are about. They run in
// bubbles, where their sleeps take no time and others come to rest meanwhile.
func allFaults() []fault {
	return slices.Concat(publishFaults, receiveFaults, endFaults, adminFaults, lossFaults, orderFaults, letterFaults, settingFaults, againFaults)
}

// mute is a Settler that settles nothing and says that it did.
type mute struct{}

func (mute) Settle(context.Context, reactor.Outcome) error { return nil }

func (mute) Extend(context.Context) (time.Time, error) { return time.Now().Add(time.Hour), nil }

// waits returns when d has passed, and an error when something else happened.
func (s *bentSource) waits(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended:
		return messaging.ErrClosed
	}
}

// never returns an error, when there is a reason to.
func (s *bentSource) never(ctx context.Context) (*messaging.Delivery, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
		return nil, messaging.ErrClosed
	}
}

// keepsPublished keeps the publisher's event, and has each delivery changed by it.
func keepsPublished(change func(d *messaging.Delivery, kept event.Event)) func(*bent) {
	return func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			for _, ev := range events {
				b.keep(ev)
			}
			return b.Broker.Publish(ctx, events...)
		}
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			change(d, b.keep(d.Value))
			return d
		}
	}
}

// key names a subscription.
func key(sub messaging.Subscription) string { return sub.DeadLettersOf + " " + sub.Name }

// settlesAs changes each outcome.
func settlesAs(change func(s *bentSource, o *reactor.Outcome)) func(*bent) {
	return func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			change(d.source, &o)
			return d.inner.Settle(ctx, o)
		}
	}
}

// seekAll moves all subscriptions of a broker.
func seekAll(b *memory.Broker, to messaging.Start) {
	all, _ := b.Subscriptions(context.Background())
	for _, s := range all {
		b.Seek(context.Background(), s.Subscription, to)
	}
}

// sameBroker is a restart that forgets nothing.
func sameBroker(b *memory.Broker) *memory.Broker { return b }
