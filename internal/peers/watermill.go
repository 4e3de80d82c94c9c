package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/catchment-events/catchment/event"
)

func openGoChannel(_ context.Context, s site) (*link, error) {
	ps := gochannel.NewGoChannel(gochannel.Config{
		BlockPublishUntilSubscriberAck: !s.stored, // or there is no order
		Persistent:                     s.stored,
	}, watermill.NopLogger{})
	return watermillLink(s, ps, ps, ps.Close), nil
}

// watermillMessage carries an event the way Watermill does: attributes are
// metadata.
func watermillMessage(e event.Event) *message.Message {
	m := message.NewMessage(e.ID(), e.Data())
	for _, a := range attributes {
		m.Metadata.Set(a.name, a.value)
	}
	return m
}

func watermillLink(s site, pub message.Publisher, sub message.Subscriber, end func() error) *link {
	return &link{
		publish: func(_ context.Context, e event.Event) error { return pub.Publish(s.name, watermillMessage(e)) },
		batch: func(_ context.Context, es []event.Event) error {
			ms := make([]*message.Message, len(es))
			for i, e := range es {
				ms[i] = watermillMessage(e)
			}
			return pub.Publish(s.name, ms...)
		},
		subscribe: func(ctx context.Context) (member, error) {
			messages, err := sub.Subscribe(context.WithoutCancel(ctx), s.name)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context, handle handler) error {
				for {
					select {
					case m := <-messages:
						more := handle(m.UUID)
						m.Ack()
						if !more {
							return nil
						}
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}, nil
		},
		close: end,
	}
}
