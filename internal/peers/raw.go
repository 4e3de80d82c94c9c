package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// openRaw is the client without a library on top, and with codec what the same
// costs when events are checked, encoded and decoded.
func openRaw(codec bool) func(ctx context.Context, s site) (*link, error) {
	return func(ctx context.Context, s site) (*link, error) {
		nc, js, st, err := stream(ctx, s, s.name+".>")
		if err != nil {
			return nil, err
		}
		message := rawMessage
		if codec {
			message = encodedMessage
		}
		return &link{
			publish: func(ctx context.Context, e event.Event) error {
				m, err := message(s.name, e)
				if err != nil {
					return err
				}
				_, err = js.PublishMsg(ctx, m)
				return err
			},
			batch: func(_ context.Context, es []event.Event) error {
				for _, e := range es {
					m, err := message(s.name, e)
					if err != nil {
						return err
					}
					// The default gives up when the window is full for 200 ms.
					if _, err := js.PublishMsgAsync(m, natsjs.WithStallWait(time.Minute)); err != nil {
						return err
					}
				}
				return nil
			},
			flush: func(ctx context.Context) error {
				select {
				case <-js.PublishAsyncComplete():
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
			subscribe: func(ctx context.Context) (member, error) {
				c, err := st.CreateConsumer(ctx, rawConsumer(s, "peers"))
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context, handle handler) error { return rawConsume(ctx, c, codec, handle) }, nil
			},
			idle: func(ctx context.Context, name string) error {
				_, err := st.CreateConsumer(ctx, rawConsumer(s, name))
				return err
			},
			close: func() error { defer nc.Close(); return deleteStreams(nc, s.name) },
		}, nil
	}
}

func rawConsumer(s site, name string) natsjs.ConsumerConfig {
	return natsjs.ConsumerConfig{
		Durable:       name,
		AckPolicy:     natsjs.AckExplicitPolicy,
		MaxAckPending: maxAckPending,
		FilterSubject: s.name + "." + eventType,
	}
}

// rawMessage writes the headers that the codec writes, as somebody would who
// knows that no value needs encoding.
func rawMessage(stream string, e event.Event) (*nats.Msg, error) {
	id := e.ID()
	return &nats.Msg{Subject: stream + "." + eventType, Data: e.Data(), Header: nats.Header{
		"ce-specversion":     {specVersion},
		"ce-id":              {id},
		"ce-source":          {source},
		"ce-type":            {eventType},
		"ce-subject":         {subject},
		"ce-time":            {eventTime},
		"ce-datacontenttype": {contentType},
		"ce-traceparent":     {traceParent},
		"ce-partitionkey":    {partitionKey},
		"ce-tenant":          {tenant},
		natsjs.MsgIDHeader:   {id},
	}}, nil
}

func encodedMessage(stream string, e event.Event) (*nats.Msg, error) {
	if err := messaging.CheckEvents(messaging.MaxEventSize, e); err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: stream + "." + eventType, Header: make(nats.Header, 12)}
	body, err := event.NATS.Encode(e, m.Header)
	if err != nil {
		return nil, err
	}
	m.Data = body
	m.Header[natsjs.MsgIDHeader] = []string{e.ID()}
	return m, nil
}

func rawConsume(ctx context.Context, c natsjs.Consumer, codec bool, handle handler) error {
	ended := make(chan error, 1)
	end := func(err error) {
		select {
		case ended <- err:
		default:
		}
	}
	enough := false
	cc, err := c.Consume(func(m natsjs.Msg) {
		if enough {
			return
		}
		var id string
		if codec {
			e, err := event.NATS.Decode(m.Headers(), m.Data())
			if err != nil {
				end(fmt.Errorf("decode: %w", err))
				return
			}
			id = e.ID()
		} else {
			id = m.Headers().Get("ce-id")
		}
		enough = !handle(id)
		if err := m.Ack(); err != nil || enough {
			end(err)
		}
	}, natsjs.PullMaxMessages(pullSize))
	if err != nil {
		return err
	}
	defer cc.Stop()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
