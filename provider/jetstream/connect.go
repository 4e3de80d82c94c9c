package jetstream

import (
	"fmt"
	"log/slog"
	"net/url"
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
		return nil, fmt.Errorf("jetstream: connect to %s: %w", redact(url), err)
	}
	return nc, nil
}

// redact takes the user and password out of a comma-separated list of URLs.
func redact(urls string) string {
	parts := strings.Split(urls, ",")
	for i, p := range parts {
		p = strings.TrimSpace(p)
		u, err := url.Parse(p)
		switch {
		case err != nil:
			p = "(a URL that does not parse)"
		case u.User != nil:
			u.User = url.User("redacted") // a user alone may be a token
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
