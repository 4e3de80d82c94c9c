package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Connect connects to the servers of a NATS URL (several with commas between
// them) with options that lose nothing: it reconnects for ever, notices a dead
// server within a minute, and buffers nothing while it is away, for Publish
// sends again by itself what was not answered. Options given here come after
// those. Credentials in the URL do not appear in its errors [SEC-2].
func Connect(url string, opts ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(url, append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(20 * time.Second),
		nats.MaxPingsOutstanding(2),
	}, opts...)...)
	if err != nil {
		if _, ok := errors.AsType[*neturl.Error](err); ok {
			err = errors.New("it does not parse") // the error quotes it
		}
		return nil, fmt.Errorf("jetstream: connect to %s: %w", redact(url), err)
	}
	return nc, nil
}

// connected waits until the connection is one.
func connected(ctx context.Context, nc *nats.Conn) error {
	for !nc.IsConnected() {
		if nc.IsClosed() {
			return fmt.Errorf("jetstream: %w", nats.ErrConnectionClosed)
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("jetstream: no connection to a server: %w", ctx.Err())
			if last := nc.LastError(); last != nil {
				err = fmt.Errorf("%w (%w)", err, last)
			}
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// asking calls ask, once there is a connection, and again for each time that the
// connection broke meanwhile: what was asked, or the answer, was lost with it.
func asking(ctx context.Context, nc *nats.Conn, ask func(context.Context) error) error {
	for {
		if err := connected(ctx, nc); err != nil {
			return err
		}
		before := nc.Stats().Reconnects
		err := untilBroken(ctx, nc, ask)
		if err == nil || ctx.Err() != nil || nc.IsConnected() && nc.Stats().Reconnects == before {
			return err
		}
	}
}

// untilBroken calls ask with a context that ends when the connection breaks: the
// client would wait for an answer.
func untilBroken(ctx context.Context, nc *nats.Conn, ask func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	broken := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(broken) // closes it
	go func() {
		for range broken {
			cancel()
		}
	}()
	return ask(ctx)
}

// redact takes the user and password out of a comma-separated list of URLs.
func redact(urls string) string {
	parts := strings.Split(urls, ",")
	for i, p := range parts {
		p = strings.TrimSpace(p)
		if !strings.Contains(p, "://") {
			p = "nats://" + p // as the client takes it
		}
		u, err := neturl.Parse(p)
		switch {
		case err != nil:
			p = "(a URL that does not parse)"
		case u.User != nil:
			u.User = neturl.User("redacted") // a user alone may be a token
			p = u.String()
		}
		parts[i] = p
	}
	return strings.Join(parts, ",")
}

// noteOptions logs what a connection's options put at risk.
func noteOptions(nc *nats.Conn) {
	var risks []string
	if !nc.Opts.AllowReconnect || nc.Opts.MaxReconnect >= 0 {
		risks = append(risks, fmt.Sprintf("it gives up after %d reconnects, for good (nats.MaxReconnects(-1))", nc.Opts.MaxReconnect))
	}
	if nc.Opts.ReconnectBufSize >= 0 {
		risks = append(risks, "while it is away it buffers, so late acks and publishes that failed may still arrive (nats.ReconnectBufSize(-1))")
	}
	if len(risks) > 0 {
		slog.Default().Warn("jetstream: the connection's options", "risks", risks)
	}
}
