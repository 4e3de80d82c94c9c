package main

import (
	"context"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

func openMemory(context.Context, site) (*link, error) { return brokerLink(memory.New(nil)), nil }

// brokerLink is a broker of ours.
func brokerLink(b conformance.Broker) *link {
	return &link{
		publish: func(ctx context.Context, e event.Event) error { return b.Publish(ctx, e) },
		batch:   func(ctx context.Context, es []event.Event) error { return b.Publish(ctx, es...) },
		subscribe: func(ctx context.Context) (member, error) {
			src, err := b.Subscribe(ctx, messaging.Subscription{Name: "peers", Types: []string{eventType}}, nil)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context, handle handler) error { return receive(ctx, src, handle) }, nil
		},
		idle: func(ctx context.Context, name string) error {
			src, err := b.Subscribe(ctx, messaging.Subscription{Name: name, Types: []string{eventType}}, nil)
			if err != nil {
				return err
			}
			return src.Close()
		},
		close: b.Close,
	}
}

func receive(ctx context.Context, src messaging.Source, handle handler) error {
	for {
		d, err := src.Receive(ctx)
		if err != nil {
			return err
		}
		more := handle(d.Value.ID())
		if err := d.Ack(ctx); err != nil || !more {
			return err
		}
	}
}
