package main

import (
	"context"
	"errors"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/mempubsub"

	"github.com/catchment-events/catchment/event"
)

func openMempubsub(context.Context, site) (*link, error) {
	topic := mempubsub.NewTopic()
	sub := mempubsub.NewSubscription(topic, 30*time.Second)
	return &link{
		publish: func(ctx context.Context, e event.Event) error {
			m := &pubsub.Message{Body: e.Data(), Metadata: make(map[string]string, len(attributes)+1)}
			m.Metadata["id"] = e.ID()
			for _, a := range attributes {
				m.Metadata[a.name] = a.value
			}
			return topic.Send(ctx, m)
		},
		subscribe: func(context.Context) (member, error) {
			return func(ctx context.Context, handle handler) error {
				for {
					m, err := sub.Receive(ctx)
					if err != nil {
						return err
					}
					more := handle(m.Metadata["id"])
					m.Ack()
					if !more {
						return nil
					}
				}
			}, nil
		},
		close: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return errors.Join(topic.Shutdown(ctx), sub.Shutdown(ctx))
		},
	}, nil
}
