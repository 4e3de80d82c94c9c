package catchment_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

type Order struct{ ID int }

// Billing charges for orders. It runs until ctx ends, then drains.
func Billing(ctx context.Context, s messaging.Subscriber, charge func(context.Context, Order) error) error {
	return messaging.React(ctx, s, messaging.Subscription{
		Name:        "billing",
		Types:       []string{"order.placed"},
		MaxAttempts: 5,
	}, messaging.Typed(func(ctx context.Context, _ event.Event, o Order) error {
		return charge(ctx, o) // nil acks, an error retries after a backoff
	}), &messaging.Options{Concurrency: 8})
}

// Shop runs two reactors until ctx ends or one of them fails.
func Shop(ctx context.Context, b messaging.Broker, charge func(context.Context, Order) error, log *slog.Logger) error {
	mux := messaging.NewMux(messaging.RejectUnknown) // what else comes is a dead letter, with the reason
	mux.Handle("order.placed", messaging.Typed(func(ctx context.Context, _ event.Event, o Order) error {
		return charge(ctx, o)
	}))
	mux.Handle("order.*.cancelled", func(context.Context, event.Event) error { return nil })

	opts := &messaging.Options{
		Concurrency: 100,
		Key:         messaging.PartitionKey, // one customer's orders in their order
		Observer:    messaging.Log(log),
	}
	audit := reactor.Breaker(store, 5, time.Minute) // receives nothing while its database is away
	group := reactor.Group{Reactors: []*reactor.Reactor{
		messaging.NewReactor(b, messaging.Subscription{Name: "orders", Types: mux.Types()}, mux.Dispatch, opts),
		messaging.NewReactor(b, messaging.Subscription{Name: "audit", MaxInFlight: 1}, audit, nil),
	}}
	return group.Run(ctx) // group.Check is for the readiness probe
}

func store(context.Context, event.Event) error { return nil }

func TestShop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memory.New(nil)
		defer broker.Close()
		ctx, cancel := context.WithCancel(t.Context())
		e, err := event.New("/shop", "order.placed", Order{ID: 17})
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.Publish(ctx, e); err != nil {
			t.Fatal(err)
		}
		charged := 0
		err = Shop(ctx, broker, func(_ context.Context, o Order) error {
			charged = o.ID
			cancel()
			return nil
		}, slog.New(slog.DiscardHandler))
		if err != nil || charged != 17 {
			t.Errorf("Shop: %v, charged for %d", err, charged)
		}
	})
}

func TestBillingTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memory.New(nil)
		defer broker.Close()
		ctx, cancel := context.WithCancel(t.Context())

		e, err := event.New("/shop", "order.placed", Order{ID: 17})
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.Publish(ctx, e); err != nil {
			t.Fatal(err)
		}
		tries := 0
		err = Billing(ctx, broker, func(context.Context, Order) error {
			if tries++; tries < 3 {
				return errors.New("the bank is closed")
			}
			cancel()
			return nil
		})
		if err != nil || tries != 3 {
			t.Errorf("Billing: %v after %d tries", err, tries)
		}
	})
}

// production is the README's, with the address of a test's server.
func production(ctx context.Context, charge func(context.Context, Order) error, address string) error {
	nc, err := jetstream.Connect(address)
	if err != nil {
		return err
	}
	defer nc.Close()
	broker, err := jetstream.New(ctx, nc, jetstream.Config{Stream: "shop"})
	if err != nil {
		return err
	}
	defer broker.Close()
	return Billing(ctx, broker, charge)
}

func TestBillingInProduction(t *testing.T) {
	srv, err := embedded.Start(t.TempDir(), &embedded.Options{Host: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	broker, err := jetstream.New(t.Context(), nc, jetstream.Config{Stream: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	e, err := event.New("/shop", "order.placed", Order{ID: 17})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	charged := 0
	err = production(ctx, func(_ context.Context, o Order) error {
		charged = o.ID
		cancel()
		return nil
	}, srv.URL())
	if err != nil || charged != 17 {
		t.Errorf("Billing: %v, charged for %d", err, charged)
	}
}

// mine stands for a provider that somebody is about to write.
var mine = struct{ New func() conformance.Broker }{New: func() conformance.Broker { return memory.New(nil) }}

// provider is the README's test of a provider.
func provider(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		Open: func(t *testing.T) conformance.Broker { return mine.New() },
	})
}

var _ = provider

// TestReadme holds the README's code to this file and an example, where it is
// compiled and run.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	shop, err := os.ReadFile("examples/shop/shop.go")
	if err != nil {
		t.Fatal(err)
	}
	// Only how far it is indented, the address and a test's name may differ.
	flat := func(s string) string {
		s = strings.ReplaceAll(s, `"nats://localhost:4222"`, "address")
		s = strings.ReplaceAll(s, "func TestConformance(t", "func provider(t")
		return strings.Join(strings.Fields(s), " ")
	}
	code := flat(string(source)) + flat(string(shop))
	blocks := 0
	for block := range strings.SplitSeq(string(readme), "```go\n") {
		if blocks++; blocks == 1 {
			continue // what stands before the first
		}
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(code, flat(block)) {
			t.Errorf("this code of the README is neither in readme_test.go nor in examples/shop/shop.go:\n%s", block)
		}
	}
	if blocks != 8 {
		t.Errorf("the README has %d blocks of code, want 7", blocks-1)
	}
}
