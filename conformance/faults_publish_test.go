package conformance

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// publishFaults are those of what is published, and of Publish.
var publishFaults = []fault{
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
	{name: "keeps the publisher's event", breaks: "EVT-4", wrap: keepsPublished(func(d *messaging.Delivery, kept event.Event) {
		d.Value = event.Clone(kept)
	})},
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
}
