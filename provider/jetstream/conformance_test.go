package jetstream_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

// window is the deduplication window of the brokers under test.
const window = 2 * time.Second

var streams atomic.Int64

// open returns an empty broker on a stream of its own.
func open(t *testing.T, srv *embedded.Server, cfg jetstream.Config) *jetstream.Broker {
	t.Helper()
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if cfg.Stream == "" {
		cfg.Stream = fmt.Sprintf("test-%d", streams.Add(1))
	}
	cfg.Duplicates = window
	b, err := jetstream.New(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	conns.Store(b, nc)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// conns are the connections of the brokers under test.
var conns sync.Map

// kill cuts a broker off for good.
func kill(b *jetstream.Broker) {
	nc, _ := conns.Load(b)
	nc.(*nats.Conn).Close()
}

// start returns a server that lasts as long as the test.
func start(t *testing.T) *embedded.Server {
	t.Helper()
	srv, err := embedded.Start(t.TempDir(), &embedded.Options{SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

func TestConformance(t *testing.T) {
	t.Parallel()
	srv := start(t)
	conformance.Run(t, harness(srv, jetstream.Config{}))
}

func TestConformanceConfirmedAcks(t *testing.T) {
	if testing.Short() {
		t.Skip("the same suite again, with every settle confirmed: left out by -short")
	}
	t.Parallel()
	srv := start(t)
	h := harness(srv, jetstream.Config{ConfirmedAcks: true})
	h.Capabilities |= conformance.ConfirmedAck
	conformance.Run(t, h)
}

// client returns the client's own interface.
func client(t *testing.T, srv *embedded.Server) natsjs.JetStream {
	t.Helper()
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func harness(srv *embedded.Server, cfg jetstream.Config) conformance.Harness {
	return conformance.Harness{
		Open: func(t *testing.T) conformance.Broker { return open(t, srv, cfg) },
		OpenFull: func(t *testing.T) conformance.Broker {
			cfg := cfg
			cfg.MaxEvents = 1
			b := open(t, srv, cfg)
			e, err := event.New("/full", "full", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			return b
		},
		OpenDiscarding: func(t *testing.T, events int) conformance.Broker {
			cfg := cfg
			cfg.MaxEvents, cfg.DiscardOldest = int64(events), true
			return open(t, srv, cfg)
		},
		OpenDeadFull: func(t *testing.T) (conformance.Broker, func()) {
			b := open(t, srv, cfg)
			name := b.Stream().CachedInfo().Config.Name
			bound := func(most int64) {
				js := client(t, srv)
				s, err := js.Stream(context.Background(), name+"_DEAD")
				if err != nil {
					t.Fatal(err)
				}
				cfg := s.CachedInfo().Config
				cfg.MaxMsgs = most
				if _, err := js.UpdateStream(context.Background(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := client(t, srv).Publish(t.Context(), name+"_DEAD.filler", nil); err != nil {
				t.Fatal(err)
			}
			bound(1)
			return b, func() { bound(-1) }
		},
		Inject: func(t *testing.T, b conformance.Broker, header map[string][]string, body []byte) {
			nc, err := srv.Connect()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			stream := b.(*jetstream.Broker).Stream().CachedInfo().Config.Name
			typ := "foreign"
			if v := header["ce-type"]; len(v) > 0 {
				typ = v[0]
			}
			msg := &nats.Msg{Subject: stream + "." + typ, Header: header, Data: body}
			if _, err := nc.RequestMsg(msg, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		},
		Restart: func(t *testing.T, b conformance.Broker) conformance.Broker {
			// As if the process had died: nothing is said, nothing handed back.
			old := b.(*jetstream.Broker)
			cfg := cfg
			cfg.Stream = old.Stream().CachedInfo().Config.Name
			kill(old)
			return open(t, srv, cfg)
		},
		Capabilities: conformance.Durable | conformance.Positions | conformance.Expires,
		AckWait:      time.Second,
		Duplicates:   window,
		Slack:        jetstream.Slack,
	}
}
