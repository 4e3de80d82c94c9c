package main

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

func openJetStream(ctx context.Context, s site) (*link, error) {
	nc, err := jetstream.Connect(s.url)
	if err != nil {
		return nil, err
	}
	b, err := jetstream.New(ctx, nc, jetstream.Config{Stream: s.name})
	if err != nil {
		nc.Close()
		return nil, err
	}
	l := brokerLink(b)
	l.close = func() error {
		defer nc.Close()
		err := b.Close()
		return errors.Join(err, deleteStreams(nc, s.name, s.name+"_DEAD"))
	}
	return l, nil
}

// openEmbedded is the same on a server in this process, which syncs what it has
// written before it says so.
func openEmbedded(ctx context.Context, s site) (*link, error) {
	srv, err := embedded.Start(s.dir, nil)
	if err != nil {
		return nil, err
	}
	nc, err := srv.Connect()
	if err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	stop := func() error { nc.Close(); return srv.Close() }
	b, err := jetstream.New(ctx, nc, jetstream.Config{Stream: s.name})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	l := brokerLink(b)
	l.close = func() error { return errors.Join(b.Close(), stop()) }
	return l, nil
}

// stream makes the stream of a peer with the settings of ours: on file, with the
// same window for duplicates.
func stream(ctx context.Context, s site, subjects ...string) (*nats.Conn, natsjs.JetStream, natsjs.Stream, error) {
	nc, err := nats.Connect(s.url)
	if err != nil {
		return nil, nil, nil, err
	}
	js, err := natsjs.New(nc, natsjs.WithPublishAsyncMaxPending(maxPending))
	if err != nil {
		nc.Close()
		return nil, nil, nil, err
	}
	st, err := js.CreateStream(ctx, natsjs.StreamConfig{
		Name:        s.name,
		Subjects:    subjects,
		Storage:     natsjs.FileStorage,
		Discard:     natsjs.DiscardNew,
		Duplicates:  messaging.DefaultDuplicates,
		AllowDirect: true,
	})
	if err != nil {
		nc.Close()
		return nil, nil, nil, err
	}
	return nc, js, st, nil
}

// What a consumer of every system has: ours fetches ahead half of MaxInFlight.
const (
	maxPending    = 4096 // events on their way to the server
	maxAckPending = messaging.DefaultMaxInFlight
	pullSize      = maxAckPending / 2
)

func deleteStreams(nc *nats.Conn, names ...string) error {
	js, err := natsjs.New(nc)
	if err != nil {
		return err
	}
	for _, name := range names {
		err = errors.Join(err, js.DeleteStream(context.Background(), name))
	}
	return err
}
