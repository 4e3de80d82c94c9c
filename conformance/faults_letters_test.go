package conformance

import (
	"context"
	"errors"
	"sync"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// letterFaults are those of what dead letters say, who gets them, and what
// deletes them.
var letterFaults = []fault{
	// DLQ-2 and DLQ-3.
	{name: "the first reason stays", breaks: "DLQ-2/reason_of_the_last DLQ-2/reason_of_a_lost", wrap: func(b *bent) {
		var reasons sync.Map
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			reasons.LoadOrStore(d.inner.Value.ID(), o.Reason)
			return d.inner.Settle(ctx, o)
		}
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if l, ok := messaging.DeadLetterFrom(d.Info); ok {
				reason, _ := reasons.Load(d.Value.ID())
				l.Reason, _ = reason.(string)
				d.Info.Annotations = l.Annotations()
			}
			return d
		}
	}},
	{name: "dead letters of others are without data", breaks: "DLQ-2/injected", wrap: func(b *bent) {
		countsPublished(b)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if s.sub.DeadLettersOf != "" && b.counted("published "+d.Value.ID()) == 0 {
				d.Value.DataEncoded = nil
			}
			return d
		}
	}},
	{name: "an Update forgets what cannot be buried", breaks: "DLQ-3/update", wrap: func(b *bent) {
		countsUpdates(b)
		b.deliver = notWhen(func(s *bentSource, _ *messaging.Delivery) bool {
			return s.sub.DeadLettersOf != "" && b.counted("updates") > 0
		})
	}},

	// DLQ-4.
	{name: "dead letters from the first always", breaks: "DLQ-4/start_new DLQ-4/positions", wrap: subscribes(func(sub *messaging.Subscription) {
		if sub.DeadLettersOf != "" {
			sub.Start = messaging.StartFirst()
		}
	})},
	{name: "dead letters from one too far", breaks: "DLQ-4/positions", wrap: subscribes(func(sub *messaging.Subscription) {
		if n, ok := sub.Start.Sequence(); ok && sub.DeadLettersOf != "" {
			sub.Start = messaging.StartFrom(n + 1)
		}
	})},
	{name: "dead letters go with the log", breaks: "DLQ-4/log_discards", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			b.next("calls")
			return b.Broker.Publish(ctx, events...)
		}
		b.deliver = notWhen(func(s *bentSource, _ *messaging.Delivery) bool {
			return s.sub.DeadLettersOf != "" && b.counted("calls") > 5
		})
	}},
	{name: "a name that was there is one for dead letters", breaks: "DLQ-4/of_one_deleted", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			b.next("made " + sub.Name)
			src, err := b.Broker.Subscribe(ctx, sub, report)
			if errors.Is(err, messaging.ErrNotFound) && b.counted("made "+sub.DeadLettersOf) > 0 {
				return b.Broker.Subscribe(ctx, messaging.Subscription{Name: sub.Name, Types: []string{"none"}}, report)
			}
			return src, err
		}
	}},
	{name: "dead letters are read ahead", breaks: "DLQ-4/removed_by_another", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) { sub.MaxInFlight++ })(b)
		var ahead sync.Map
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			next, ok := ahead.LoadAndDelete(s)
			if !ok {
				d, err := s.Source.Receive(ctx)
				if err != nil || s.sub.DeadLettersOf == "" {
					return d, err
				}
				next = d
			}
			now, cancel := context.WithTimeout(ctx, 1)
			defer cancel()
			if d, err := s.Source.Receive(now); err == nil {
				ahead.Store(s, d)
			}
			return next.(*messaging.Delivery), nil
		}
	}},

	// ADM-3.
	{name: "dead letters of nobody do not decode", breaks: "ADM-3/undecodable_stays", wrap: administers(func(a *bentAdmin) {
		a.raw = func(ctx context.Context, name string) ([]*messaging.DecodeError, error) {
			if current(ctx, a.Admin, messaging.Subscription{Name: name}).AckWait == 0 {
				return nil, messaging.ErrNotFound
			}
			return a.Admin.Undecodable(ctx, name)
		}
	})},
	{name: "Delete cuts off those on its dead letters", breaks: "ADM-3/made_anew_under_its_dead_letters", wrap: func(b *bent) {
		administers(func(a *bentAdmin) {
			a.delete = func(ctx context.Context, sub messaging.Subscription) (uint64, error) {
				b.next("deleted " + sub.Name)
				return a.Admin.Delete(ctx, sub)
			}
		})(b)
		b.deliver = notWhen(func(s *bentSource, _ *messaging.Delivery) bool { return b.counted("deleted "+s.sub.DeadLettersOf) > 0 })
	}},
	{name: "Delete takes a namesake along", breaks: "ADM-3/namesake", wrap: administers(func(a *bentAdmin) {
		a.delete = func(ctx context.Context, sub messaging.Subscription) (uint64, error) {
			a.Admin.Delete(ctx, messaging.Subscription{Name: sub.Name})
			return a.Admin.Delete(ctx, sub)
		}
	})},
	{name: "DeleteDeadLetters leaves what is out", breaks: "ADM-3/dead_letters_out", wrap: func(b *bent) {
		countsEmptied(b)
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			s.mu.Lock()
			held := s.held
			s.mu.Unlock()
			if s.sub.DeadLettersOf != "" && b.counted("emptied") > 0 && len(held) > 0 {
				return held[0], nil
			}
			return s.Source.Receive(ctx)
		}
	}},
	{name: "DeleteDeadLetters cuts off those on them", breaks: "ADM-3/dead_letters_go_on", wrap: func(b *bent) {
		countsEmptied(b)
		b.deliver = notWhen(func(s *bentSource, _ *messaging.Delivery) bool {
			return s.sub.DeadLettersOf != "" && b.counted("emptied") > 0
		})
	}},
}

// countsEmptied counts the DeleteDeadLetters.
func countsEmptied(b *bent) {
	administers(func(a *bentAdmin) {
		a.letters = func(ctx context.Context, name string) (uint64, error) {
			b.next("emptied")
			return a.Admin.DeleteDeadLetters(ctx, name)
		}
	})(b)
}

// countsUpdates counts the Updates.
func countsUpdates(b *bent) {
	administers(func(a *bentAdmin) {
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			b.next("updates")
			return a.Admin.Update(ctx, sub)
		}
	})(b)
}

// countsPublished counts what was published, by id.
func countsPublished(b *bent) {
	b.publish = func(ctx context.Context, events []event.Event) error {
		for _, ev := range events {
			b.next("published " + ev.ID())
		}
		return b.Broker.Publish(ctx, events...)
	}
}
