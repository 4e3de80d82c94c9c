package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// lossFaults lose, repeat, or count wrongly.
var lossFaults = []fault{
	// Loss.
	{name: "drops the last on close", breaks: "CLS-1 CLS-2", wrap: func(b *bent) {
		b.closing = func(s *bentSource) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for i := range s.held {
				if s.held[len(s.held)-1-i].Ack(context.Background()) == nil {
					break
				}
			}
			return s.Source.Close()
		}
	}},
	{name: "forgets retries on close", breaks: "ACK-3/backing_off_while_closed", wrap: func(b *bent) {
		var mu sync.Mutex
		due, forgotten := make(map[string]time.Time), make(map[string]bool)
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if o.Result == reactor.Retried && o.After > 0 {
				mu.Lock()
				due[key(d.source.sub)+d.inner.Value.ID()] = time.Now().Add(o.After)
				mu.Unlock()
			}
			return d.inner.Settle(ctx, o)
		}
		b.closing = func(s *bentSource) error {
			mu.Lock()
			defer mu.Unlock()
			for id, at := range due {
				if strings.HasPrefix(id, key(s.sub)) && time.Now().Before(at) {
					forgotten[id] = true
				}
			}
			return s.Source.Close()
		}
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			mu.Lock()
			defer mu.Unlock()
			if forgotten[key(s.sub)+d.Value.ID()] {
				return nil
			}
			return d
		}
	}},
	{name: "acks before the handler", breaks: "ACK-2 ACK-3 ACK-4 CLS-2 RUN-6", wrap: func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			d.Ack(context.Background())
			return reactor.NewDelivery(d.Value, d.Info, d.Deadline(), mute{})
		}
	}},
	{name: "acks on a context error", breaks: "ACK-2 RCV-4", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			d, err := s.Source.Receive(ctx)
			if err != nil && ctx.Err() != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, held := range s.held {
					held.Ack(context.Background())
				}
			}
			return d, err
		}
	}},
	{name: "close cancels and acks", breaks: "CLS-1/broker", wrap: func(b *bent) {
		var held []*messaging.Delivery
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			b.mu.Lock()
			defer b.mu.Unlock()
			held = append(held, d)
			return d
		}
		b.close = func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, d := range held {
				d.Ack(context.Background())
			}
			return b.Broker.Close()
		}
	}},
	{name: "poison blocks the rest", breaks: "RCV-5/no_event", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			return b.Broker.Subscribe(ctx, sub, func(ctx context.Context, err error) {
				b.next("poisoned " + key(sub))
				report.Do(ctx, err)
			})
		}
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			d, err := s.Source.Receive(ctx)
			b.mu.Lock()
			poisoned := b.n["poisoned "+key(s.sub)] > 0
			b.mu.Unlock()
			if poisoned && err == nil {
				return s.never(ctx)
			}
			return d, err
		}
	}},
	{name: "lost after 5 retries", breaks: "RCV-2/attempts", wrap: func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if d.Info.Attempt > 5 {
				return nil
			}
			return d
		}
	}},
	{name: "a restart loses everything", breaks: "PUB-11/restart SUB-9/restart DLQ-1/restart RCV-2/restart", restart: func(*memory.Broker) *memory.Broker { return memory.New(nil) }},
	{name: "a restart skips", breaks: "SUB-9/restart RCV-2/restart", restart: func(b *memory.Broker) *memory.Broker {
		seekAll(b, messaging.StartNew())
		return b
	}},
	{name: "a restart loses the last", breaks: "PUB-11/restart", restart: func(b *memory.Broker) *memory.Broker {
		// As far as anybody can tell who subscribes later.
		to := memory.New(nil)
		src, err := b.Subscribe(context.Background(), messaging.Subscription{Name: "copy"}, nil)
		if err != nil {
			return to
		}
		var all []event.Event
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 1)
			d, err := src.Receive(ctx)
			cancel()
			if err != nil {
				break
			}
			all = append(all, d.Value)
		}
		to.Publish(context.Background(), all[:max(0, len(all)-1)]...)
		return to
	}},

	// Duplicates.
	{name: "enqueues twice", breaks: "PUB-1 PUB-3 ACK-1", wrap: func(b *bent) {
		twice := make(map[string][]*messaging.Delivery)
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			if ctx.Err() != nil {
				return s.Source.Receive(ctx)
			}
			b.mu.Lock()
			if list := twice[key(s.sub)]; len(list) > 0 {
				twice[key(s.sub)] = list[1:]
				b.mu.Unlock()
				return list[0], nil
			}
			b.mu.Unlock()
			d, err := s.Source.Receive(ctx)
			if err == nil && d.Info.Attempt == 1 {
				b.mu.Lock()
				defer b.mu.Unlock()
				twice[key(s.sub)] = append(twice[key(s.sub)], reactor.NewDelivery(event.Clone(d.Value), d.Info, d.Deadline(), mute{}))
			}
			return d, err
		}
	}},
	{name: "a lease ends early", breaks: "ACK-2 ACK-5 ACK-5/refused", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) { sub.AckWait /= 2 })(b)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, d.Deadline().Add(s.sub.AckWait/2), d)
		}
	}},
	{name: "a second Subscribe resets the position", breaks: "SUB-3 ACK-1", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			if b.next("open "+key(sub)) > 1 {
				if a, err := messaging.AdminOf(b.Broker); err == nil {
					a.Seek(ctx, sub, messaging.StartFirst())
				}
			}
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},
	{name: "a restart forgets acks", breaks: "ACK-1/restart SUB-9/restart", restart: func(b *memory.Broker) *memory.Broker {
		seekAll(b, messaging.StartFirst())
		return b
	}},
	{name: "a restart loses subscriptions", breaks: "ACK-1/restart SUB-9/restart", restart: func(b *memory.Broker) *memory.Broker {
		all, _ := b.Subscriptions(context.Background())
		for _, s := range all {
			b.Delete(context.Background(), s.Subscription)
		}
		return b
	}},
	{name: "a restart loses dead letters", breaks: "DLQ-1/restart", restart: func(b *memory.Broker) *memory.Broker {
		all, _ := b.Subscriptions(context.Background())
		for _, s := range all {
			if s.DeadLettersOf == "" {
				b.DeleteDeadLetters(context.Background(), s.Name)
			}
		}
		return b
	}},

	// Attempts.
	{name: "attempts are lost when it is opened again", breaks: "SUB-9/close RCV-2/across_members", wrap: func(b *bent) {
		epochs, first := make(map[string]int), make(map[string]int)
		b.closing = func(s *bentSource) error {
			b.mu.Lock()
			epochs[key(s.sub)]++
			b.mu.Unlock()
			return s.Source.Close()
		}
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			b.mu.Lock()
			defer b.mu.Unlock()
			id := fmt.Sprint(key(s.sub), " ", epochs[key(s.sub)], " ", d.Value.ID())
			if _, ok := first[id]; !ok && epochs[key(s.sub)] > 0 {
				first[id] = d.Info.Attempt - 1
			}
			d.Info.Attempt -= first[id]
			return d
		}
	}},
	{name: "attempts are lost at a restart", breaks: "SUB-9/restart DLQ-1/restart", restart: func(b *memory.Broker) *memory.Broker {
		all, _ := b.Subscriptions(context.Background())
		for _, s := range all {
			b.Delete(context.Background(), s.Subscription)
			if src, err := b.Subscribe(context.Background(), s.Subscription, nil); err == nil {
				src.Close()
			}
		}
		return b
	}},
}
