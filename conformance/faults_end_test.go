package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// endFaults are those of what is lost or comes twice, of dead letters, and of Close.
var endFaults = []fault{
	// Loss and duplicates.
	{name: "drops acks", breaks: "ACK-1 ACK-6 ACK-1/not_again ACK-1/closed_at_once ACK-6/at_once ACK-6/failed", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if o.Result == reactor.Acked {
				return nil
			}
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "drops an ack now and then", breaks: "ACK-1", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if o.Result == reactor.Acked && b.next("acks")%5 == 0 {
				return nil
			}
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "a retry drops", breaks: "ACK-3 RCV-2 SUB-9 RUN-1", wrap: settlesInstead(reactor.Retried, reactor.Acked)},
	{name: "a release drops", breaks: "ACK-9 RUN-3 RUN-3/timeout", wrap: settlesInstead(reactor.Released, reactor.Acked)},
	{name: "a release counts", breaks: "ACK-9 RCV-2 DLQ-1 ACK-6/twice ACK-9/at_once ACK-9/any_member DLQ-1/releases RUN-10/RUN-3_timeout", wrap: settlesInstead(reactor.Released, reactor.Retried)},
	{name: "a reject drops", breaks: "DLQ-3/strict_order DLQ-3/others_go_on RCV-3/strict_order_and_death ACK-4 DLQ-2 DLQ-4 ACK-4/not_again", wrap: settlesInstead(reactor.Rejected, reactor.Acked)},
	{name: "a reject retries", breaks: "DLQ-3/strict_order DLQ-3/others_go_on ACK-4", wrap: settlesInstead(reactor.Rejected, reactor.Retried)},
	{name: "drops every 50th", breaks: "PUB-1 PUB-8", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			kept := slices.DeleteFunc(slices.Clone(events), func(event.Event) bool { return b.next("published")%50 == 0 })
			return b.Broker.Publish(ctx, kept...)
		}
	}},
	{name: "drops a backlog above 1,000", breaks: "PUB-1 PUB-7 PUB-1/backlog PUB-7/stuck_subscriptions", wrap: func(b *bent) {
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if b.next(s.sub.Name) > 1000 {
				return nil
			}
			return d
		}
	}},
	{name: "drops from a batch what is above 100", breaks: "PUB-1 PUB-1/batch", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			return b.Broker.Publish(ctx, events[:min(len(events), 100)]...)
		}
	}},
	{name: "close acks", breaks: "CLS-1 CLS-2 CLS-1/while_another_waits CLS-2/loses_nothing CLS-2/counts_nothing", wrap: func(b *bent) {
		b.closing = func(s *bentSource) error {
			for _, d := range s.held {
				d.Ack(context.Background())
			}
			return s.Source.Close()
		}
	}},
	{name: "close keeps what it held", breaks: "CLS-1 CLS-2", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			select {
			case <-s.ended:
				return nil, messaging.ErrClosed
			default:
			}
			return s.Source.Receive(ctx)
		}
		b.closing = func(*bentSource) error { return nil }
	}},
	{name: "close forgets the subscription", breaks: "SUB-3 SUB-9 CLS-2 SUB-3/resume", wrap: subscribes(func(sub *messaging.Subscription) { sub.Expires = 1 })},
	{name: "a lost wake-up", breaks: "PUB-1", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			now, cancel := context.WithTimeout(ctx, 1)
			defer cancel()
			if d, err := s.Source.Receive(now); err == nil || now.Err() == nil {
				return d, err
			}
			return s.never(ctx)
		}
	}},
	{name: "no deduplication", breaks: "PUB-3 PUB-6 PUB-6/again", options: memory.Options{Duplicates: 1}},
	{name: "deduplication that never ends", breaks: "PUB-4 PUB-4/after_the_window", options: memory.Options{Duplicates: 24 * time.Hour}},
	{name: "deduplication that ends early", breaks: "PUB-3 PUB-3/to_the_end_of_the_window", options: memory.Options{Duplicates: messaging.DefaultDuplicates - time.Second}},
	{name: "deduplication by id", breaks: "PUB-3 PUB-3/distinct", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			return b.Broker.Publish(ctx, slices.DeleteFunc(slices.Clone(events), func(ev event.Event) bool { return b.next(ev.ID()) > 1 })...)
		}
	}},
	{name: "returns before it stored", breaks: "PUB-6 SUB-2 EVT-2/attributes PUB-10/concurrent", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			events = slices.Clone(events)
			go func() {
				time.Sleep(time.Millisecond)
				b.Broker.Publish(context.WithoutCancel(ctx), events...)
			}()
			return nil
		}
	}},
	{name: "registers later", breaks: "SUB-1 SUB-1/before_the_first_receive SUB-1/at_once", wrap: func(b *bent) {
		b.subscribe = func(_ context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			return registersLater(b.Broker, sub, report), nil
		}
	}},

	// Dead letters.
	{name: "no cap", breaks: "DLQ-1", wrap: subscribes(func(sub *messaging.Subscription) { sub.MaxAttempts = 0 })},
	{name: "one attempt too many", breaks: "RCV-3/strict_order_and_death DLQ-1 DLQ-1/ack_wait DLQ-1/across_members", wrap: subscribes(func(sub *messaging.Subscription) {
		if sub.MaxAttempts > 0 {
			sub.MaxAttempts++
		}
	})},
	{name: "no reason", breaks: "DLQ-2 DLQ-2/unchanged DLQ-2/reason", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			o.Reason = ""
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "a dead letter is changed", breaks: "DLQ-2", wrap: func(b *bent) {
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if s.sub.DeadLettersOf != "" {
				d.Value.SetExtension("dead", "true")
			}
			return d
		}
	}},
	{name: "a dead letter of another age", breaks: "DLQ-2", wrap: tells(func(i *reactor.Info) {
		if l, ok := messaging.DeadLetterFrom(*i); ok {
			l.Stored = i.Stored
			l.Attempts++
			i.Annotations = l.Annotations()
		}
	})},
	{name: "dead letters stay", breaks: "DLQ-4 DLQ-4/separate", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if d.source.sub.DeadLettersOf != "" && o.Result == reactor.Acked {
				o.Result = reactor.Rejected
			}
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "rejected dead letters go", breaks: "DLQ-4 DLQ-4/failing", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if d.source.sub.DeadLettersOf != "" && o.Result == reactor.Rejected {
				o.Result = reactor.Acked
			}
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "no dead letters are an empty list", breaks: "DLQ-4 DLQ-4/work_list DLQ-4/identity", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			src, err := b.Broker.Subscribe(ctx, sub, report)
			if errors.Is(err, messaging.ErrNotFound) {
				return b.Broker.Subscribe(ctx, messaging.Subscription{Name: sub.Name, Types: []string{"none"}}, report)
			}
			return src, err
		}
	}},

	// Close.
	{name: "a second Close panics", breaks: "CLS-1 CLS-1/idempotent RUN-5/given_back RUN-10/RUN-5_given_back", wrap: func(b *bent) {
		b.closing = func(s *bentSource) error {
			if b.next(fmt.Sprintf("close %p", s)) > 1 {
				panic("close of closed source")
			}
			return s.Source.Close()
		}
	}},
	{name: "a second Close hangs", breaks: "CLS-1", wrap: func(b *bent) {
		b.closing = func(s *bentSource) error {
			if b.next(fmt.Sprintf("close %p", s)) > 1 {
				select {}
			}
			return s.Source.Close()
		}
	}},
	{name: "closing a broker leaves its sources", breaks: "CLS-1 RCV-1 RUN-8 RCV-1/closed ACK-7/closed RUN-8/ends RUN-10/RUN-8_ends", wrap: func(b *bent) {
		var closed atomic.Bool
		b.close = func() error { closed.Store(true); return nil }
		b.publish = func(ctx context.Context, events []event.Event) error {
			if closed.Load() {
				return messaging.ErrClosed
			}
			return b.Broker.Publish(ctx, events...)
		}
	}},
	{name: "a Close closes all members", breaks: "CLS-1", wrap: func(b *bent) {
		members := make(map[string][]messaging.Source)
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			src, err := b.Broker.Subscribe(ctx, sub, report)
			b.mu.Lock()
			defer b.mu.Unlock()
			members[sub.Name] = append(members[sub.Name], src)
			return src, err
		}
		b.closing = func(s *bentSource) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, src := range members[s.sub.Name] {
				src.Close()
			}
			return nil
		}
	}},
	{name: "leaves a goroutine behind", breaks: "CLS-3", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			go func() { select {} }()
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},
}
