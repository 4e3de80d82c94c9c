package jetstream_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

// A server in the process, a broker on it, and an event there and back.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	srv, err := embedded.Start(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	nc, err := srv.Connect()
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	ctx, cancel := context.WithCancel(context.Background())
	broker, err := jetstream.New(ctx, nc, jetstream.Config{Stream: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	e, err := event.New("/shop", "order.placed", map[string]int{"amount": 17})
	if err != nil {
		log.Fatal(err)
	}
	if err := broker.Publish(ctx, e); err != nil {
		log.Fatal(err)
	}
	err = messaging.React(ctx, broker, messaging.Subscription{Name: "billing"}, func(_ context.Context, e event.Event) error {
		fmt.Println(e.Type(), string(e.Data()))
		cancel()
		return nil
	}, nil)
	fmt.Println(err)
	// Output:
	// order.placed {"amount":17}
	// <nil>
}
