package ledger_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

// A broker is opened, used, and opened again: what was published is there, and
// what was handled is not handled again.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	for run := 1; run <= 2; run++ {
		broker, err := ledger.Open(dir, nil)
		if err != nil {
			log.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		e, err := event.New("/shop", "order.placed", map[string]int{"run": run})
		if err != nil {
			log.Fatal(err)
		}
		if err := broker.Publish(ctx, e); err != nil { // it is on the disk now
			log.Fatal(err)
		}
		err = messaging.React(ctx, broker, messaging.Subscription{Name: "billing"}, func(_ context.Context, e event.Event) error {
			fmt.Printf("%s %s\n", e.Type(), e.Data())
			cancel()
			return nil
		}, nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := broker.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// order.placed {"run":1}
	// order.placed {"run":2}
}
