package main

import (
	"context"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	sdk "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/client"
	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/event"
)

// openCloudEvents is the SDK's own protocol binding, in its binary mode. It has
// no working way to ack after the handler, so nats.go acks for it, before.
func openCloudEvents(ctx context.Context, s site) (*link, error) {
	nc, _, _, err := stream(ctx, s, s.name+".*")
	if err != nil {
		return nil, err
	}
	subject := s.name + ".order"
	sender, err := cejs.NewSenderFromConn(nc, s.name, subject, nil)
	if err != nil {
		nc.Close()
		return nil, err
	}
	sends, err := sdk.NewClient(sender)
	if err != nil {
		nc.Close()
		return nil, err
	}
	receiving, err := nats.Connect(s.url)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &link{
		publish: func(ctx context.Context, e event.Event) error {
			if err := sends.Send(sdk.WithEncodingBinary(ctx), e); !sdk.IsACK(err) {
				return err
			}
			return nil
		},
		subscribe: func(context.Context) (member, error) {
			consumer, err := cejs.NewConsumerFromConn(receiving, s.name, subject, nil, []nats.SubOpt{
				nats.DeliverAll(), nats.AckExplicit(), nats.MaxAckPending(maxAckPending),
			})
			if err != nil {
				return nil, err
			}
			// One goroutine that handles one after another keeps the order.
			receives, err := sdk.NewClient(consumer, client.WithPollGoroutines(1), client.WithBlockingCallback())
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context, handle handler) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				ended, enough := make(chan error, 1), make(chan struct{})
				done := false
				go func() {
					ended <- receives.StartReceiver(ctx, func(e sdk.Event) {
						if !done && !handle(e.ID()) {
							done = true
							close(enough)
						}
					})
				}()
				select {
				case <-enough:
					return nil
				case err := <-ended:
					return err
				}
			}, nil
		},
		close: func() error {
			receiving.Close()
			defer nc.Close()
			return deleteStreams(nc, s.name)
		},
	}, nil
}
