package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
	"github.com/catchment-events/catchment/provider/ledger"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// open returns a broker and what closes it. Which broker it is makes no
// difference to the services.
func (s *shop) open(ctx context.Context) (messaging.Broker, func() error, error) {
	if s.memory {
		broker := memory.New(nil)
		return broker, broker.Close, nil
	}
	if s.ledger != "" {
		broker, err := ledger.Open(s.ledger, nil)
		if err != nil {
			return nil, nil, err
		}
		return broker, broker.Close, nil
	}
	conn, disconnect, err := s.connect()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	broker, err := jetstream.New(ctx, conn, jetstream.Config{Stream: "catchment-orders", MaxAge: 7 * 24 * time.Hour})
	if err != nil {
		return nil, nil, errors.Join(err, disconnect())
	}
	return broker, func() error { return errors.Join(broker.Close(), disconnect()) }, nil
}

// connect connects to a NATS server: somebody's, or one in this process.
func (s *shop) connect() (*nats.Conn, func() error, error) {
	if s.nats != "" {
		conn, err := jetstream.Connect(s.nats)
		return conn, func() error { conn.Close(); return nil }, err
	}
	s.out.Println("JetStream in this process, in", s.dir)
	server, err := embedded.Start(s.dir, nil)
	if err != nil {
		return nil, nil, err
	}
	conn, err := server.Connect()
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return conn, func() error { conn.Close(); return server.Close() }, nil
}

// backlog returns how many events wait for each subscription or are out with its
// members, whoever published them.
func backlog(ctx context.Context, b messaging.Broker) (map[string]int, error) {
	admin, err := messaging.AdminOf(b)
	if err != nil {
		return nil, err
	}
	all, err := admin.Subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	left := make(map[string]int)
	for _, s := range all {
		if s.DeadLettersOf == "" {
			left[s.Name] = int(s.Pending) + s.InFlight
		}
	}
	return left, nil
}

// passing returns a subscription for reading something once, from its start: no
// other has its name, and it goes by itself when its member has gone.
func passing(what string) messaging.Subscription {
	return messaging.Subscription{
		Name:        fmt.Sprintf("%s-%d", what, time.Now().UnixNano()),
		AckWait:     ackWait,
		MaxInFlight: 1 << 16,
		Expires:     time.Second,
	}
}

// stored returns which of the events stand in the log since a point in time.
func stored(ctx context.Context, b messaging.Broker, since time.Time, events map[key]bool) (map[key]bool, error) {
	sub := passing("lookup")
	sub.Start = messaging.StartAt(since)
	found := make(map[key]bool)
	err := messaging.React(ctx, b, sub, func(_ context.Context, e event.Event) error {
		if k := keyOf(e); events[k] {
			found[k] = true
		}
		return nil
	}, &messaging.Options{IdleTimeout: idleTimeout})
	return found, errors.Join(err, context.Cause(ctx)) // or it was not read to its end
}

// idleTimeout is longer than a retry takes: then nothing is left.
const idleTimeout = 2 * maxBackoff

// A deadLetter is an event that a subscription gave up on.
type deadLetter struct {
	event  event.Event
	detail messaging.DeadLetter
}

// deadLetters returns the dead letters of a subscription. It rejects them for a
// subscription of its own, so they stay where they are.
func deadLetters(ctx context.Context, b messaging.Broker, subscription string) (letters []deadLetter, err error) {
	sub := passing("list")
	sub.DeadLettersOf = subscription
	err = messaging.React(ctx, b, sub, func(ctx context.Context, e event.Event) error {
		detail, _ := messaging.DeadLetterFrom(reactor.InfoFrom(ctx))
		letters = append(letters, deadLetter{e, detail})
		return reactor.Reject(errors.New("it was only read"))
	}, &messaging.Options{IdleTimeout: idleTimeout})
	return letters, err
}

// redrive is the feed of a run that handles dead letters anew. A letter that is
// acked is gone; what its handler publishes goes the way of all events.
func redrive(b messaging.Broker, services []service, t *tally) feed {
	return func(ctx context.Context, _ messaging.Publisher) error {
		for _, svc := range services {
			if svc.repair == nil {
				continue
			}
			sub := messaging.Subscription{
				Name:          "redrive",
				DeadLettersOf: svc.sub.Name,
				AckWait:       svc.sub.AckWait,
			}
			opts := svc.opts
			opts.Observer = t.observer(sub)
			opts.IdleTimeout = idleTimeout
			if err := messaging.React(ctx, b, sub, svc.repair, &opts); err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	}
}
