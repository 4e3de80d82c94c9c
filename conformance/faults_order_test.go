package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// orderFaults mix up what is there, and when, and with whom.
var orderFaults = []fault{
	// Order.
	{name: "last in, first out", breaks: "PUB-2 RCV-3/log_order", wrap: func(b *bent) {
		stacks := make(map[*bentSource][]*messaging.Delivery)
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for {
				now, cancel := context.WithTimeout(ctx, time.Nanosecond)
				d, err := s.Source.Receive(now)
				cancel()
				if err != nil {
					break
				}
				stacks[s] = append(stacks[s], d)
			}
			for n := len(stacks[s]); n > 0 && ctx.Err() == nil; n-- {
				d := stacks[s][n-1]
				stacks[s] = stacks[s][:n-1]
				if time.Now().Before(d.Deadline()) {
					return d, nil
				}
			}
			b.mu.Unlock()
			defer b.mu.Lock()
			return s.Source.Receive(ctx)
		}
	}},
	{name: "a retry breaks the order", breaks: "RCV-3/strict_order", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) {
			if sub.MaxInFlight == 1 {
				sub.MaxInFlight = 2
			}
		})(b)
		gates := make(map[string]chan struct{})
		open := make(map[*messaging.Delivery]func())
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			if s.sub.MaxInFlight != 1 {
				return s.Source.Receive(ctx)
			}
			b.mu.Lock()
			gate := gates[key(s.sub)]
			if gate == nil {
				gate = make(chan struct{}, 1)
				gates[key(s.sub)] = gate
			}
			b.mu.Unlock()
			select {
			case gate <- struct{}{}:
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-s.ended:
				return nil, messaging.ErrClosed
			}
			d, err := s.Source.Receive(ctx)
			if err != nil {
				<-gate
				return nil, err
			}
			free := sync.OnceFunc(func() { <-gate })
			time.AfterFunc(time.Until(d.Deadline()), free)
			b.mu.Lock()
			open[d] = free
			b.mu.Unlock()
			return d, nil
		}
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			err := d.inner.Settle(ctx, o)
			b.mu.Lock()
			free := open[d.inner]
			b.mu.Unlock()
			if free != nil {
				free()
			}
			return err
		}
	}},

	// Events.
	{name: "changes the case of names", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) {
		if v, ok := v1(ev).Extensions["ext"]; ok {
			delete(v1(ev).Extensions, "ext")
			v1(ev).Extensions["Ext"] = v
		}
	})},
	{name: "time to the second", breaks: "EVT-3 RUN-9/settled_later", wrap: delivers(func(ev *event.Event) {
		if c := v1(ev); c.Time != nil {
			c.Time = &types.Timestamp{Time: c.Time.Time.Truncate(time.Second)}
		}
	})},
	{name: "mangles UTF-8", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) {
		if c := v1(ev); c.Subject != nil {
			var latin strings.Builder
			for _, r := range *c.Subject {
				latin.WriteRune(min(r, 0xFF))
			}
			c.Subject = ptr(latin.String())
		}
	})},
	{name: "loses %", breaks: "EVT-3 EVT-3/types", wrap: delivers(func(ev *event.Event) { v1(ev).Type = strings.ReplaceAll(v1(ev).Type, "%", "") })},
	{name: "shares extensions between deliveries", breaks: "EVT-5", wrap: func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if first := b.keep(d.Value); v1(&first) != v1(&d.Value) {
				v1(&d.Value).Extensions = v1(&first).Extensions
			}
			return d
		}
	}},
	{name: "keeps the publisher's data", breaks: "EVT-4 EVT-4/after_publish", wrap: keepsPublished(func(d *messaging.Delivery, kept event.Event) {
		d.Value.DataEncoded = bytes.Clone(kept.DataEncoded)
	})},

	// Start, filter, names.
	{name: "StartNew begins one too early", breaks: "SUB-2/new", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			err := b.Broker.Publish(ctx, events...)
			for range events {
				if err == nil {
					b.next("stored")
				}
			}
			return err
		}
		subscribes(func(sub *messaging.Subscription) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if n := b.n["stored"]; sub.Start == messaging.StartNew() && n > 0 {
				sub.Start = messaging.StartFrom(uint64(n))
			}
		})(b)
	}},
	{name: "ignores types", breaks: "SUB-8/match SUB-8/strange_types SUB-8/malformed", wrap: subscribes(func(sub *messaging.Subscription) { sub.Types = nil })},
	{name: "one subscription steals from another", breaks: "SUB-6 EVT-5/subscriptions", wrap: func(b *bent) {
		owner := make(map[string]string)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if s.sub.DeadLettersOf != "" {
				return d
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if _, taken := owner[d.Value.ID()]; !taken {
				owner[d.Value.ID()] = s.sub.Name
			}
			if owner[d.Value.ID()] != s.sub.Name {
				return nil
			}
			return d
		}
	}},

	// Time.
	{name: "a long delay overflows", breaks: "ACK-3/a_day ACK-3/longest", wrap: settlesAs(func(_ *bentSource, o *reactor.Outcome) {
		if o.After > time.Hour {
			o.After = 0
		}
	})},
	{name: "each delay is an hour", breaks: "ACK-3/delays ACK-3/at_once RUN-1 RUN-7", wrap: settlesAs(func(_ *bentSource, o *reactor.Outcome) {
		if o.Result == reactor.Retried {
			o.After = time.Hour
		}
	})},
	{name: "an event that backs off blocks others", breaks: "ACK-3/others_go_on SUB-6 SUB-6/independent", wrap: func(b *bent) {
		until := make(map[string]time.Time)
		settlesAs(func(s *bentSource, o *reactor.Outcome) {
			if o.Result == reactor.Retried && o.After > 0 {
				b.mu.Lock()
				defer b.mu.Unlock()
				until[key(s.sub)] = time.Now().Add(o.After)
			}
		})(b)
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			b.mu.Lock()
			wait := time.Until(until[key(s.sub)])
			b.mu.Unlock()
			if wait > 0 {
				if err := s.waits(ctx, wait); err != nil {
					return nil, err
				}
			}
			return s.Source.Receive(ctx)
		}
	}},
	{name: "delivers 2 s late", breaks: "PUB-1", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			if err := s.waits(ctx, 2*time.Second); err != nil {
				return nil, err
			}
			return s.Source.Receive(ctx)
		}
	}},

	// Dead letters.
	{name: "settled before the dead letter is stored", breaks: "DLQ-3", harness: func(h *Harness) {
		open := h.OpenDeadFull
		h.OpenDeadFull = func(t *testing.T) (Broker, func()) {
			inner, room := open(t)
			b := &bent{Broker: inner}
			settlesInstead(reactor.Rejected, reactor.Acked)(b)
			return b, room
		}
	}},

	// Fencing.
	{name: "a stale retry redelivers", breaks: "ACK-7", wrap: func(b *bent) {
		b.later = make(map[string]*messaging.Delivery)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.later[key(s.sub)+d.Value.ID()] = d
			return reactor.NewDelivery(d.Value, d.Info, time.Time{}, &staleRetry{d, &lateSettler{b, key(s.sub) + d.Value.ID()}})
		}
	}},

	// Members.
	{name: "one member stalls another", breaks: "RCV-2/across_members CLS-1/gives_back", wrap: func(b *bent) {
		var members []*bentSource
		holds := func(s *bentSource) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, d := range s.held {
				if b.n[fmt.Sprintf("settled %p", d)] == 0 {
					return true
				}
			}
			return false
		}
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			for {
				stalled := false
				b.mu.Lock()
				if b.n[fmt.Sprintf("member %p", s)] == 0 {
					if b.n == nil {
						b.n = make(map[string]int)
					}
					b.n[fmt.Sprintf("member %p", s)]++
					members = append(members, s)
				}
				for _, m := range members {
					stalled = stalled || m != s && key(m.sub) == key(s.sub) && holds(m)
				}
				b.mu.Unlock()
				if !stalled {
					return s.Source.Receive(ctx)
				}
				if err := s.waits(ctx, 10*time.Millisecond); err != nil {
					return nil, err
				}
			}
		}
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			b.next(fmt.Sprintf("settled %p", d.inner))
			return d.inner.Settle(ctx, o)
		}
	}},

	// Lifecycle.
	{name: "Close does not wait", breaks: "CLS-1", wrap: func(b *bent) {
		b.closing = func(s *bentSource) error {
			go func() {
				time.Sleep(time.Millisecond)
				s.Source.Close()
			}()
			return nil
		}
	}},
	{name: "leaves a goroutine behind at each Close", breaks: "CLS-3 CLS-3/nothing_left_running", wrap: func(b *bent) {
		b.closing = func(s *bentSource) error {
			go func() { select {} }()
			return s.Source.Close()
		}
	}},
	{name: "a cancelled Publish says nothing was stored", breaks: "PUB-6/part_way", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			if err := ctx.Err(); err != nil && len(events) == 0 {
				return err
			}
			if err := b.Broker.Publish(ctx, events...); err != nil {
				return err
			}
			if b.next("calls")%3 == 0 && len(events) > 1 {
				return errors.New("nothing was stored")
			}
			return nil
		}
	}},
}

// staleRetry retries whatever delivery of the event is the last.
type staleRetry struct {
	*messaging.Delivery
	*lateSettler
}

func (s *staleRetry) Settle(ctx context.Context, o reactor.Outcome) error {
	if o.Result == reactor.Retried {
		return s.lateSettler.Settle(ctx, o)
	}
	return s.Delivery.Settle(ctx, o)
}

func (s *staleRetry) Extend(ctx context.Context) (time.Time, error) { return s.Delivery.Extend(ctx) }
