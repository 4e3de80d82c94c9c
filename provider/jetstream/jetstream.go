// Package jetstream is the broker on NATS JetStream: for production, and for
// more than one machine.
//
//	nc, err := jetstream.Connect("nats://localhost:4222")
//	...
//	broker, err := jetstream.New(ctx, nc, jetstream.Config{})
//
// # Behaviour
//
// One broker is one stream, with a durable pull consumer for each subscription
// and a second stream for dead letters. Events are stored in the binary content
// mode of the CloudEvents NATS binding, under subjects made of their type. The
// contract of package messaging holds, across restarts and kills of the server
// and of the client [PUB-11, SUB-9]. Positions and Expires are offered, ConfirmedAck on
// request; OrderedPublish, ExactAttempts, Fenced and Synced are not.
//
// What a subscription's member fetches ahead is what it lately used, half of
// MaxInFlight at most; it is kept alive while it waits, and handed back when the
// member closes. The server gives a delivery [Slack] more time than AckWait, so
// that it never takes back what a member still holds.
//
// Two things are the server's: what was given back or closed is forgotten when
// it restarts, and delivered again only after AckWait; and a subscription that
// Expires with deliveries unsettled lasts until their AckWait is over, besides.
// Reading waits for writing: strict order is slow beside a publisher whose every
// event is synced to disk.
//
// # Native tier
//
// [Broker.Stream] and [Broker.Consumer] return the client's own handles, and
// Info.Native of each delivery is its [natsjs.Msg].
//
// # Testing
//
// Package embedded starts a server in the process. Tests of a service need
// none: provider/memory keeps the same contract in virtual time.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// Slack is how much longer than AckWait the server waits: a delivery that was
// neither settled nor extended is delivered again between AckWait and AckWait
// plus Slack after Receive returned it [ACK-2]. It covers the time between the
// server's sending and our receiving, and that a server keeps a consumer's
// times in whole seconds over a restart.
const Slack = time.Second

// A Broker is a stream with its subscriptions. Its methods are safe for
// concurrent use. It implements [messaging.Broker].
type Broker struct {
	nc      *nats.Conn
	js      natsjs.JetStream
	cfg     Config
	limit   int // of an event's size
	stream  natsjs.Stream
	bounded bool // the log drops events by itself
	dead    natsjs.Stream
	publish *publisher

	mu sync.Mutex
	// Below: under mu.
	closed  bool
	members map[*member]struct{}
}

var _ messaging.Broker = (*Broker)(nil)

// New returns a broker on the connection's server. It waits for the connection,
// also for one that breaks meanwhile, as long as ctx lasts, and creates the
// streams if they are missing. It refuses
// a server that is too old, with [errors.ErrUnsupported], and a stream that
// cannot keep the contract or differs from cfg, with messaging.ErrConflict; the
// text says in what. cfg out of its range is messaging.ErrInvalid.
//
// The connection stays the caller's, who closes it after the broker. One whose
// options would give up or lose data is noted with [slog.Default]; [Connect]
// makes a good one.
func New(ctx context.Context, nc *nats.Conn, cfg Config) (*Broker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if nc == nil {
		return nil, fmt.Errorf("%w: jetstream: the connection is nil", messaging.ErrInvalid)
	}
	if nc.Opts.NoEcho {
		return nil, fmt.Errorf("%w: jetstream: the connection has nats.NoEcho, but a member must hear itself", messaging.ErrInvalid)
	}
	if err := connected(ctx, nc); err != nil {
		return nil, err
	}
	if err := checkServer(nc.ConnectedServerVersion()); err != nil {
		return nil, err
	}
	noteOptions(nc)
	js, err := natsjs.New(nc)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		nc:      nc,
		js:      js,
		cfg:     cfg,
		limit:   min(messaging.MaxEventSize, int(nc.MaxPayload())),
		members: make(map[*member]struct{}),
	}
	if b.stream, err = b.ensure(ctx, cfg.stream()); err != nil {
		return nil, err
	}
	have := b.stream.CachedInfo().Config
	b.bounded = have.Discard == natsjs.DiscardOld || have.MaxAge > 0
	if b.dead, err = b.ensure(ctx, cfg.dead()); err != nil {
		return nil, err
	}
	if b.publish, err = newPublisher(nc, cfg.MaxPending); err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	return b, nil
}

// Publish implements [messaging.Publisher]: the events of one call, and of
// concurrent ones, are on their way to the server together, MaxPending at most.
// What is not answered is sent again until ctx ends, and stored once.
func (b *Broker) Publish(ctx context.Context, events ...event.Event) error {
	if err := b.refusal(ctx); err != nil {
		return err
	}
	if err := messaging.CheckEvents(b.limit, events...); err != nil {
		return err
	}
	msg := &nats.Msg{Header: make(nats.Header, 12)} // one after another of the events
	errs := b.publish.publishEach(ctx, len(events), func(i int) (_ *nats.Msg, err error) {
		e := events[i]
		clear(msg.Header)
		if msg.Data, err = event.NATS.Encode(e, msg.Header); err != nil {
			return nil, fmt.Errorf("%w: %w", messaging.ErrInvalid, err)
		}
		msg.Header[natsjs.MsgIDHeader] = []string{messageID(e)}
		msg.Subject = subject(b.cfg.Prefix, e.Type())
		return msg, nil
	})
	switch {
	case errs == nil:
		return nil
	case len(errs) == 1:
		return errs[0]
	}
	return &reactor.BatchError{Errors: errs}
}

// Subscribe implements [messaging.Subscriber]. The member's consumer is looked
// up first and created only if it is missing; the settings it has are compared
// with those asked for [SUB-4]. It waits for the connection as New does.
func (b *Broker) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	if err := b.refusal(ctx); err != nil {
		return nil, err
	}
	sub, err := sub.Normalize()
	if err != nil {
		return nil, err
	}
	m, err := newMember(ctx, b, sub, report)
	if err != nil {
		return nil, fmt.Errorf("jetstream: subscribe %q: %w", sub.Name, err)
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.members[m] = struct{}{}
	}
	b.mu.Unlock()
	if closed {
		return nil, errors.Join(messaging.ErrClosed, m.Close())
	}
	return m, nil
}

// Close ends the broker and its sources, which hand back what they hold. The
// connection, the streams and the subscriptions stay. It is idempotent.
func (b *Broker) Close() error {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	var members []*member
	for m := range b.members {
		members = append(members, m)
	}
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() { _ = m.Close() })
	}
	wg.Wait()
	if !closed {
		b.publish.close()
	}
	return nil
}

// Stream returns the client's handle of the stream that is the log. What is
// done through it is outside the contract.
func (b *Broker) Stream() natsjs.Stream { return b.stream }

// Consumer returns the client's handle of the consumer behind a subscription,
// or an error that wraps messaging.ErrNotFound.
func (b *Broker) Consumer(ctx context.Context, name string) (natsjs.Consumer, error) {
	i, err := b.incarnation(ctx, messaging.Subscription{Name: name})
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	return i.consumer, nil
}

// refusal is the reason for which a call does nothing, before its arguments
// are looked at.
func (b *Broker) refusal(ctx context.Context) error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return messaging.ErrClosed
	}
	return ctx.Err()
}
