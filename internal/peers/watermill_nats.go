package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	wmjs "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func openWatermillNATS(ackAsync bool) func(ctx context.Context, s site) (*link, error) {
	return func(ctx context.Context, s site) (*link, error) {
		nc, _, _, err := stream(ctx, s, s.name)
		if err != nil {
			return nil, err
		}
		// Closing either closes its connection.
		conns := make([]*nats.Conn, 2)
		for i := range conns {
			if conns[i], err = nats.Connect(s.url); err != nil {
				nc.Close()
				return nil, err
			}
		}
		pub, err := wmjs.NewPublisher(wmjs.PublisherConfig{Conn: conns[0], Logger: watermill.NopLogger{}})
		if err != nil {
			nc.Close()
			return nil, err
		}
		sub, err := wmjs.NewSubscriber(wmjs.SubscriberConfig{
			Conn:                conns[1],
			Logger:              watermill.NopLogger{},
			ResourceInitializer: durable,
			ConsumeOptions:      []natsjs.PullConsumeOpt{natsjs.PullMaxMessages(pullSize)},
			AckAsync:            ackAsync,
		})
		if err != nil {
			nc.Close()
			return nil, err
		}
		return watermillLink(s, pub, sub, func() error {
			defer nc.Close()
			return errors.Join(pub.Close(), sub.Close(), deleteStreams(nc, s.name))
		}), nil
	}
}

// durable makes the consumer that the others have; the library's own is not
// durable.
func durable(ctx context.Context, js natsjs.JetStream, topic string) (natsjs.Consumer, func(context.Context, watermill.LoggerAdapter), error) {
	c, err := js.CreateConsumer(ctx, topic, natsjs.ConsumerConfig{
		Durable:       "peers",
		AckPolicy:     natsjs.AckExplicitPolicy,
		MaxAckPending: maxAckPending,
	})
	return c, nil, err
}
