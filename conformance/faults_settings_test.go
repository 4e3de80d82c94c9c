package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// settingFaults are those of Expires and Update, of bounds and duplicates, and
// of events that are stored in another way than most.
var settingFaults = []fault{
	// SUB-10.
	{name: "an idle member does not keep it", breaks: "SUB-10/idle", wrap: func(b *bent) {
		var last sync.Map
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			if at, ok := last.Swap(key(sub), time.Now()); ok && sub.Expires > 0 && time.Since(at.(time.Time)) > sub.Expires {
				a, _ := messaging.AdminOf(b.Broker)
				a.Delete(ctx, messaging.Subscription{Name: sub.Name})
			}
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},
	{name: "a refused Subscribe keeps it", breaks: "SUB-10/refused_and_closed_again", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			src, err := b.Broker.Subscribe(ctx, sub, report)
			if errors.Is(err, messaging.ErrConflict) {
				a, _ := messaging.AdminOf(b.Broker)
				member, _ := b.Broker.Subscribe(ctx, current(ctx, a, sub), nil)
				member.Close()
			}
			return src, err
		}
	}},
	{name: "an Update keeps it", breaks: "SUB-10/admin", wrap: func(b *bent) {
		administers(func(a *bentAdmin) {
			a.update = func(ctx context.Context, sub messaging.Subscription) error {
				if err := a.Admin.Update(ctx, sub); err != nil {
					return err
				}
				member, err := b.Broker.Subscribe(ctx, sub, nil)
				if err != nil {
					return err
				}
				return member.Close()
			}
		})(b)
	}},
	{name: "dead letters expire, too", breaks: "SUB-10/dead_letters", wrap: func(b *bent) {
		var expiring sync.Map
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			a, _ := messaging.AdminOf(b.Broker)
			for name := range expiring.Range {
				if current(ctx, a, messaging.Subscription{Name: name.(string)}).AckWait == 0 {
					a.DeleteDeadLetters(ctx, name.(string))
				}
			}
			if sub.Expires > 0 {
				expiring.Store(sub.Name, nil)
			}
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},

	// PUB-3.
	{name: "a call ends at a duplicate", breaks: "PUB-3/before_another", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			n := slices.IndexFunc(events, func(ev event.Event) bool { return b.next(ev.ID()) > 1 })
			if n < 0 {
				n = len(events)
			}
			return b.Broker.Publish(ctx, events[:n]...)
		}
	}},
	{name: "what is refused is a duplicate later", breaks: "PUB-3/full", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			err := b.Broker.Publish(ctx, events...)
			if len(events) == 1 && b.next(events[0].ID()) > 1 {
				return nil
			}
			return err
		}
	}},
	{name: "a duplicate takes room", breaks: "PUB-3/discards_nothing", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			for _, ev := range events {
				if b.next(ev.ID()) > 1 {
					b.next("gone")
				}
			}
			return b.Broker.Publish(ctx, events...)
		}
		b.deliver = notWhen(func(_ *bentSource, d *messaging.Delivery) bool { return d.Info.Sequence <= uint64(b.counted("gone")) })
	}},

	// RET-2 and RET-3.
	{name: "full in one word", breaks: "RET-2/each", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			err := b.Broker.Publish(ctx, events...)
			if errors.Is(err, messaging.ErrFull) {
				return messaging.ErrFull
			}
			return err
		}
	}},
	{name: "a call that is too large loses its end", breaks: "RET-2/larger_than_the_log", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			return b.Broker.Publish(ctx, events[:min(len(events), 5)]...)
		}
	}},
	{name: "tells who begins later of what was before", breaks: "RET-3/begins_later", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			if n, ok := sub.Start.Sequence(); ok {
				report.Do(ctx, &messaging.DiscardedError{Subscription: sub.Name, Count: n})
			}
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},

	// EVT-3 and EVT-5.
	{name: "data ends with a buffer", breaks: "EVT-3/sizes", wrap: delivers(func(ev *event.Event) {
		if len(ev.DataEncoded) == 4097 {
			ev.DataEncoded = ev.DataEncoded[:4096]
		}
	})},
	{name: "what others published is shared", breaks: "EVT-5/injected", wrap: func(b *bent) {
		countsPublished(b)
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if b.counted("published "+d.Value.ID()) == 0 {
				d.Value = b.keep(d.Value)
			}
			return d
		}
	}},

	// ACK-3.
	{name: "a retry ends with its member", breaks: "ACK-3/waited_for_before_close", wrap: func(b *bent) {
		b.deliver = notWhen(func(s *bentSource, d *messaging.Delivery) bool { return s.member > 1 && d.Info.Attempt > 1 })
	}},

	// ADM-4.
	{name: "who waits is not told of an Update", breaks: "ADM-4/waiting", wrap: func(b *bent) {
		countsUpdates(b)
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			n := b.counted("updates")
			d, err := s.Source.Receive(ctx)
			if err == nil && n < b.counted("updates") {
				return s.never(ctx)
			}
			return d, err
		}
	}},
	{name: "an Update changes Start", breaks: "ADM-4/start_stays", wrap: administers(func(a *bentAdmin) {
		var starts sync.Map
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			starts.Store(key(sub), sub.Start)
			return a.Admin.Update(ctx, sub)
		}
		a.status = func(s *messaging.Status) {
			if start, ok := starts.Load(key(s.Subscription)); ok {
				s.Start = start.(messaging.Start)
			}
		}
	})},
	{name: "buries what is selected only", breaks: "ADM-4/out", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			a, _ := messaging.AdminOf(b.Broker)
			if types := current(ctx, a, d.source.sub).Types; o.Result == reactor.Rejected && !slices.Contains(types, d.inner.Value.Type()) {
				o.Result = reactor.Acked
			}
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "an Update looks again at the last", breaks: "ADM-4/types_later", wrap: administers(func(a *bentAdmin) {
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			return errors.Join(a.Admin.Update(ctx, sub), a.Admin.Seek(ctx, sub, messaging.StartFrom(2)))
		}
	})},
}
