package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/types"

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

// allFaults are the faults, with those of admin_test.go and of faults_test.go.
func allFaults() []fault { return slices.Concat(faults, adminFaults, moreFaults) }

var faults = []fault{
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
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-s.ended:
				return nil, messaging.ErrClosed
			}
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

	// Events.
	{name: "drops an extension", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) { delete(v1(ev).Extensions, "status") })},
	{name: "drops empty values", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) {
		for name, v := range v1(ev).Extensions {
			if v == "" {
				delete(v1(ev).Extensions, name)
			}
		}
	})},
	{name: "trims values", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) {
		for name, v := range v1(ev).Extensions {
			v1(ev).Extensions[name] = strings.TrimSpace(v.(string))
		}
	})},
	{name: "decodes values twice", breaks: "EVT-3 EVT-3/redelivered", wrap: delivers(func(ev *event.Event) {
		for name, v := range v1(ev).Extensions {
			v1(ev).Extensions[name] = strings.ReplaceAll(v.(string), "%41", "A")
		}
	})},
	{name: "extensions keep a type", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) {
		for name, v := range v1(ev).Extensions {
			if v == "true" {
				v1(ev).Extensions[name] = true
			}
		}
	})},
	{name: "trims data", breaks: "EVT-3 EVT-1/accepted EVT-3/data", wrap: delivers(func(ev *event.Event) { ev.DataEncoded = bytes.TrimSpace(ev.DataEncoded) })},
	{name: "data as a string", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) { ev.DataEncoded = bytes.ToValidUTF8(ev.DataEncoded, []byte("\uFFFD")) })},
	{name: "truncates at 64 KiB", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) { ev.DataEncoded = ev.DataEncoded[:min(len(ev.DataEncoded), 64<<10)] })},
	{name: "time to the microsecond", breaks: "EVT-3", wrap: delivers(func(ev *event.Event) {
		if c := v1(ev); c.Time != nil {
			c.Time = &types.Timestamp{Time: c.Time.Time.Truncate(time.Microsecond)}
		}
	})},
	{name: "decoded source", breaks: "EVT-3 EVT-3/attributes", wrap: delivers(func(ev *event.Event) { v1(ev).Source.RawQuery = "" })},
	{name: "shares events between deliveries", breaks: "EVT-5", wrap: func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			d.Value = b.keep(d.Value)
			return d
		}
	}},
	{name: "shares data between deliveries", breaks: "EVT-5 EVT-5/redelivery", wrap: func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			d.Value.DataEncoded = b.keep(d.Value).DataEncoded
			return d
		}
	}},
	{name: "keeps the publisher's event", breaks: "EVT-4", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			for _, ev := range events {
				b.keep(ev)
			}
			return b.Broker.Publish(ctx, events...)
		}
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			d.Value = event.Clone(b.keep(d.Value))
			return d
		}
	}},
	{name: "errors without names", breaks: "EVT-1 EVT-1/refused", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			err := b.Broker.Publish(ctx, events...)
			if errors.Is(err, messaging.ErrInvalid) {
				return messaging.ErrInvalid
			}
			return err
		}
	}},
	{name: "panics on the zero Event", breaks: "EVT-1 PUB-5", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			for _, ev := range events {
				if ev.Context == nil {
					panic("nil context")
				}
			}
			return b.Broker.Publish(ctx, events...)
		}
	}},
	{name: "a large event is invalid", breaks: "EVT-2 PUB-5 EVT-2/size", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			err := b.Broker.Publish(ctx, events...)
			if errors.Is(err, messaging.ErrTooLarge) {
				return messaging.ErrInvalid
			}
			return err
		}
	}},

	// Publish.
	{name: "stores part of a refused call", breaks: "PUB-5 PUB-5/whole_call", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			for _, ev := range events {
				if err := b.Broker.Publish(ctx, ev); err != nil {
					return err
				}
			}
			return b.Broker.Publish(ctx)
		}
	}},
	{name: "reverses batches", breaks: "PUB-1 PUB-2 PUB-2/order PUB-2/part_way", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			events = slices.Clone(events)
			slices.Reverse(events)
			return b.Broker.Publish(ctx, events...)
		}
	}},
	{name: "ignores Publish's context", breaks: "PUB-6 PUB-6/context_done", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			return b.Broker.Publish(context.WithoutCancel(ctx), events...)
		}
	}},
	{name: "waits for a slow subscription", breaks: "PUB-7", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			if b.next("delivered") > 1 {
				time.Sleep(time.Second)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			return b.Broker.Publish(ctx, events...)
		}
	}},
	{name: "loses one of two calls at a time", breaks: "PUB-10", wrap: func(b *bent) {
		var inside atomic.Int64
		b.publish = func(ctx context.Context, events []event.Event) error {
			defer inside.Add(-1)
			if inside.Add(1) > 1 && len(events) > 0 {
				return nil
			}
			time.Sleep(time.Microsecond) // in a bubble: until all others are inside, or wait
			return b.Broker.Publish(ctx, events...)
		}
	}},
	{name: "takes events after Close", breaks: "PUB-9", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			if err := b.Broker.Publish(ctx, events...); !errors.Is(err, messaging.ErrClosed) {
				return err
			}
			return nil
		}
	}},
	{name: "no events are nothing to refuse", breaks: "PUB-9 PUB-9/closed_and_empty", wrap: func(b *bent) {
		b.publish = func(ctx context.Context, events []event.Event) error {
			if len(events) == 0 {
				return nil
			}
			return b.Broker.Publish(ctx, events...)
		}
	}},
	{name: "discards when full", breaks: "RET-2 RET-2/full", harness: func(h *Harness) {
		h.OpenFull = func(t *testing.T) Broker {
			b := memory.New(&memory.Options{MaxEvents: 1, DiscardOldest: true})
			t.Cleanup(func() { b.Close() })
			return b
		}
	}},
	{name: "an acked event is gone", breaks: "RET-1 SUB-6 PUB-3/duplicates RET-1/acked_or_not", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if o.Result == reactor.Acked {
				b.next("gone " + d.inner.Value.ID())
			}
			return d.inner.Settle(ctx, o)
		}
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if b.next("gone "+d.Value.ID()) > 1 {
				return nil
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.n["gone "+d.Value.ID()] = 0
			return d
		}
	}},

	// Subscribe.
	{name: "ignores Start", breaks: "SUB-2 SUB-2/new_under_load", wrap: subscribes(func(sub *messaging.Subscription) { sub.Start = messaging.StartFirst() })},
	{name: "starts at new", breaks: "SUB-2 PUB-1 PUB-1/matching_subscriptions SUB-2/first", wrap: subscribes(func(sub *messaging.Subscription) { sub.Start = messaging.StartNew() })},
	{name: "starts one too late", breaks: "SUB-2 SUB-2/sequence SUB-2/sequence_ahead", wrap: subscribes(func(sub *messaging.Subscription) {
		if n, ok := sub.Start.Sequence(); ok {
			sub.Start = messaging.StartFrom(n + 1)
		}
	})},
	{name: "starts a nanosecond too late", breaks: "SUB-2 SUB-2/time", wrap: subscribes(func(sub *messaging.Subscription) {
		if t, ok := sub.Start.Time(); ok {
			sub.Start = messaging.StartAt(t.Add(1))
		}
	})},
	{name: "ignores conflicts", breaks: "SUB-4 SUB-4/no_conflict", wrap: func(b *bent) {
		first := make(map[string]messaging.Subscription)
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			b.mu.Lock()
			have, ok := first[sub.DeadLettersOf+" "+sub.Name]
			if !ok {
				have = sub
				first[sub.DeadLettersOf+" "+sub.Name] = sub
			}
			b.mu.Unlock()
			return b.Broker.Subscribe(ctx, have, report)
		}
	}},
	{name: "conflicts without values", breaks: "SUB-4 SUB-4/conflict SUB-4/conflict_expires", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			src, err := b.Broker.Subscribe(ctx, sub, report)
			if errors.Is(err, messaging.ErrConflict) {
				err = messaging.ErrConflict
			}
			return src, err
		}
	}},
	{name: "members have a copy each", breaks: "SUB-5", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			sub.Name = fmt.Sprintf("%s-%d", sub.Name, b.next("copy "+sub.Name))
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},
	{name: "starves a member", breaks: "SUB-5 SUB-5/split SUB-5/one_at_a_time SUB-5/one_in_flight", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			if s.member > 1 {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-s.ended:
					return nil, messaging.ErrClosed
				}
			}
			return s.Source.Receive(ctx)
		}
	}},
	{name: "an idle member hoards", breaks: "SUB-5 SUB-5/idle_member RUN-10/RUN-6_panic RUN-10/RUN-9_settled_later", wrap: func(b *bent) {
		subscribe := b.Broker.Subscribe
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			src, err := subscribe(ctx, sub, report)
			if err != nil {
				return nil, err
			}
			return hoards(src, 7), nil
		}
	}},
	{name: "sanitises names", breaks: "SUB-7 SUB-7/exact", wrap: subscribes(func(sub *messaging.Subscription) { sub.Name = strings.ReplaceAll(sub.Name, "_", "-") })},
	{name: "folds names", breaks: "SUB-7 SUB-7/bad_names", wrap: subscribes(func(sub *messaging.Subscription) { sub.Name = strings.ToLower(sub.Name) })},
	{name: "filters by prefix", breaks: "SUB-8", wrap: filters(func(p, typ string) bool {
		return strings.HasPrefix(typ, strings.TrimRight(p, "*>")) || strings.ContainsAny(p, "*>")
	})},
	{name: "filters without case", breaks: "SUB-8", wrap: filters(func(p, typ string) bool {
		return matchTokens(strings.Split(strings.ToLower(p), "."), strings.Split(strings.ToLower(typ), "."))
	})},
	{name: "a pattern matches itself only", breaks: "SUB-8", wrap: filters(func(p, typ string) bool { return p == typ })},
	{name: "> is none or more tokens", breaks: "SUB-8", wrap: filters(func(p, typ string) bool {
		return matchTokens(strings.Split(p, "."), strings.Split(typ, ".")) || p == typ+".>"
	})},
	{name: "types are patterns", breaks: "SUB-8", wrap: filters(func(p, typ string) bool {
		return matchTokens(strings.Split(p, "."), strings.Split(typ, ".")) || matchTokens(strings.Split(typ, "."), strings.Split(p, "."))
	})},
	{name: "ignores Expires", breaks: "SUB-10 SUB-10/after", wrap: subscribes(func(sub *messaging.Subscription) { sub.Expires = 0 })},
	{name: "expires early", breaks: "SUB-10 SUB-7/other_settings_out_of_range SUB-10/not_before", wrap: subscribes(func(sub *messaging.Subscription) { sub.Expires = max(0, sub.Expires-2) })},
	{name: "takes what it does not declare", breaks: "CAP-1 CAP-1/positions CAP-1/expires", harness: func(h *Harness) { h.Capabilities &^= Positions | Expires }},

	// Receive and settle.
	{name: "ignores Receive's context", breaks: "RCV-1 PUB-1/silent_broker PUB-1/waiting_members PUB-1/while_a_handler_is_inside PUB-8/stored_is_delivered RCV-1/context", wrap: func(b *bent) {
		b.receive = func(_ context.Context, s *bentSource) (*messaging.Delivery, error) {
			return s.Source.Receive(context.Background())
		}
	}},
	{name: "a cancelled Receive takes", breaks: "RCV-1", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			d, err := s.Source.Receive(ctx)
			time.Sleep(time.Microsecond) // in a bubble: until it is cancelled, if it is to be
			if err == nil && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return d, err
		}
	}},
	{name: "Receive after Close waits", breaks: "RCV-1 CLS-1 CLS-1/during_receive RUN-3/drain RUN-10/RUN-3_drain", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			d, err := s.Source.Receive(ctx)
			if errors.Is(err, messaging.ErrClosed) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return d, err
		}
	}},
	{name: "attempt is always 1", breaks: "RCV-2 RUN-1 DLQ-1", wrap: tells(func(i *reactor.Info) { i.Attempt = 1 })},
	{name: "attempt is from 0", breaks: "RCV-2", wrap: tells(func(i *reactor.Info) { i.Attempt-- })},
	{name: "attempts are by member", breaks: "RCV-2 SUB-9 RUN-6/panic", wrap: func(b *bent) {
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			d.Info.Attempt = b.next(fmt.Sprint(s.sub.Name, s.member, d.Value.ID()))
			return d
		}
	}},
	{name: "forgets MaxAttempts in Info", breaks: "DLQ-1 RUN-5 DLQ-1/at_the_cap RUN-5/info RUN-10/RUN-5_info", wrap: tells(func(i *reactor.Info) { i.MaxAttempts = 0 })},
	{name: "two are out in strict order", breaks: "RCV-3/strict_order_and_death DLQ-3/strict_order RCV-3", wrap: subscribes(func(sub *messaging.Subscription) {
		if sub.MaxInFlight == 1 {
			sub.MaxInFlight = 2
		}
	})},
	{name: "a retried event has another sequence", breaks: "RUN-2/key RUN-10/RUN-2_key", wrap: tells(func(i *reactor.Info) {
		if i.Attempt > 1 {
			i.Sequence += 1 << 20
		}
	})},
	{name: "one too many is out", breaks: "DLQ-3/others_go_on RCV-4", wrap: subscribes(func(sub *messaging.Subscription) { sub.MaxInFlight++ })},
	{name: "no bound on what is out", breaks: "RCV-3 RCV-4 RUN-2 RCV-4/one_member RCV-4/two_members RUN-2/concurrency RUN-10/RUN-2_concurrency", wrap: subscribes(func(sub *messaging.Subscription) { sub.MaxInFlight = 0 })},
	{name: "reports nothing", breaks: "RET-3/told RET-3/while_a_member_is_open DLQ-3/strict_order RCV-5", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, _ messaging.Report) (messaging.Source, error) {
			return b.Broker.Subscribe(ctx, sub, func(context.Context, error) {})
		}
	}},
	{name: "checks what it delivers", breaks: "RCV-5 RCV-5/not_valid", wrap: func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if event.Check(d.Value) != nil {
				return nil
			}
			return d
		}
	}},
	{name: "redelivers 2 ns early", breaks: "ACK-2", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) {
			if sub.AckWait > 2 {
				sub.AckWait -= 2
			}
		})(b)
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, d.Deadline().Add(2), d)
		}
	}},
	{name: "redelivers late", breaks: "ACK-2 RCV-2", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) { sub.AckWait += 2 * time.Second })(b)
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, d.Deadline().Add(-2*time.Second), d)
		}
	}},
	{name: "never redelivers", breaks: "ACK-2 RCV-2 RUN-9/never_settled RUN-10/RUN-9_never_settled", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) { sub.AckWait = 10_000 * time.Hour })(b)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, time.Now().Add(s.sub.AckWait), d)
		}
	}},
	{name: "AckWait runs from Publish", breaks: "ACK-2 ACK-2/ack_wait ACK-2/starts_at_receive ACK-2/many", wrap: func(b *bent) {
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, d.Info.Stored.Add(s.sub.AckWait), d)
		}
	}},
	{name: "retries at once", breaks: "ACK-3 SUB-9 RUN-1 RUN-7 RUN-1/outcomes RUN-7/default_backoff RUN-10/RUN-1_outcomes RUN-10/RUN-7_default_backoff", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			o.After = 0
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "retries after a second at least", breaks: "ACK-3 RUN-6/recover RUN-10/RUN-6_recover", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			o.After = max(o.After, time.Second)
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "retries after an hour at most", breaks: "ACK-3", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			o.After = min(o.After, time.Hour)
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "a late settle settles", breaks: "ADM-2/stale ACK-7 ACK-7/late ACK-7/at_the_deadline RUN-5/lost RUN-5/lost_before_its_deadline RUN-10/RUN-5_lost RUN-10/RUN-5_lost_before_its_deadline", wrap: func(b *bent) {
		b.later = make(map[string]*messaging.Delivery)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.later[s.sub.Name+d.Value.ID()] = d
			return reactor.NewDelivery(d.Value, d.Info, time.Time{}, &lateSettler{b, s.sub.Name + d.Value.ID()})
		}
	}},
	{name: "settles only while receiving", breaks: "ACK-8 ACK-8/receiving_context_ended", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if err := d.ctx.Err(); err != nil {
				return err
			}
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "extends nothing", breaks: "RUN-4/second_try RUN-4/until_settled RUN-4/while_draining ACK-5 RUN-4", wrap: func(b *bent) {
		b.extend = func(d *bentDelivery, _ context.Context) (time.Time, error) {
			return time.Now().Add(d.source.sub.AckWait), nil
		}
	}},
	{name: "cannot extend", breaks: "ACK-5 RUN-4 ACK-5/deadline RUN-4/extended RUN-10/RUN-4_extended RUN-10/RUN-4_second_try RUN-10/RUN-4_until_settled RUN-10/RUN-4_while_draining", wrap: func(b *bent) {
		b.extend = func(*bentDelivery, context.Context) (time.Time, error) {
			return time.Time{}, errors.ErrUnsupported
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

// hoards prefetches: more than a member may.
func hoards(src messaging.Source, n int) messaging.Source {
	ctx, stop := context.WithCancel(context.Background())
	h := &hoarder{Source: src, stop: stop, events: make(chan *messaging.Delivery, n)}
	h.done.Go(func() {
		for {
			d, err := src.Receive(ctx)
			if err != nil {
				close(h.events)
				return
			}
			select {
			case h.events <- d:
			case <-ctx.Done():
			}
		}
	})
	return h
}

type hoarder struct {
	messaging.Source
	events chan *messaging.Delivery
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func (h *hoarder) Receive(ctx context.Context) (*messaging.Delivery, error) {
	select {
	case d, ok := <-h.events:
		if !ok {
			return nil, messaging.ErrClosed
		}
		return d, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *hoarder) Close() error {
	h.stop()
	h.done.Wait()
	return h.Source.Close()
}

// lateSettler settles whatever delivery of the event is the last.
type lateSettler struct {
	b   *bent
	key string
}

func (l *lateSettler) latest() *messaging.Delivery {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.b.later[l.key]
}

func (l *lateSettler) Settle(ctx context.Context, o reactor.Outcome) error {
	return l.latest().Settle(ctx, o)
}

func (l *lateSettler) Extend(ctx context.Context) (time.Time, error) { return l.latest().Extend(ctx) }

// registersLater is a source whose subscription is made a little later.
func registersLater(b Broker, sub messaging.Subscription, report messaging.Report) messaging.Source {
	l := &lateSource{ready: make(chan struct{})}
	go func() {
		defer close(l.ready)
		time.Sleep(time.Millisecond)
		l.src, l.err = b.Subscribe(context.Background(), sub, report)
	}()
	return l
}

type lateSource struct {
	ready chan struct{}
	src   messaging.Source
	err   error
}

func (l *lateSource) Receive(ctx context.Context) (*messaging.Delivery, error) {
	<-l.ready
	if l.err != nil {
		return nil, l.err
	}
	return l.src.Receive(ctx)
}

func (l *lateSource) Close() error {
	<-l.ready
	if l.err != nil {
		return nil
	}
	return l.src.Close()
}
