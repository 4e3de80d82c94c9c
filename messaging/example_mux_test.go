package messaging_test

import (
	"context"
	"fmt"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

type invoice struct {
	Number int `json:"number"`
}

// A service that handles several types gives each a handler of its own, and
// subscribes to what it has handlers for.
func ExampleMux() {
	broker := memory.New(nil)
	defer broker.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	mux := messaging.NewMux(messaging.RejectUnknown)
	mux.Handle("order.placed", messaging.Typed(func(_ context.Context, _ event.Event, o order) error {
		fmt.Println("bill", o.ID, "of", o.Total)
		return nil
	}))
	mux.Handle("order.*", func(_ context.Context, e event.Event) error {
		fmt.Println("note", e.Type())
		return nil
	})
	mux.Handle("invoice.>", messaging.Typed(func(_ context.Context, e event.Event, i invoice) error {
		fmt.Println(e.Type(), i.Number)
		stop() // this example has seen enough
		return nil
	}))
	fmt.Println(mux.Types())

	for _, e := range []struct {
		typ  string
		data any
	}{
		{"order.placed", order{ID: "A1", Total: 42}},
		{"order.cancelled", nil},
		{"customer.moved", nil}, // not subscribed to
		{"invoice.eu.sent", invoice{Number: 7}},
	} {
		e, err := event.New("/shop", e.typ, e.data)
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := broker.Publish(ctx, e); err != nil {
			fmt.Println(err)
			return
		}
	}
	err := messaging.React(ctx, broker, messaging.Subscription{Name: "billing", Types: mux.Types()}, mux.Dispatch, nil)
	fmt.Println(err)
	// Output:
	// [invoice.> order.*]
	// bill A1 of 42
	// note order.cancelled
	// invoice.eu.sent 7
	// <nil>
}

// Two patterns that match the same type, with nothing to tell which is meant,
// are found when the service starts.
func ExampleMux_Handle() {
	defer func() { fmt.Println(recover()) }()
	mux := messaging.NewMux(messaging.RetryUnknown) // there may be a newer version of this service
	mux.Handle("order.*", messaging.AckUnknown)
	mux.Handle("*.placed", messaging.AckUnknown)
	// Output: messaging: Mux.Handle: pattern "*.placed" conflicts with pattern "order.*": both match type "order.placed", and neither is more specific than the other
}

func ExampleTyped() {
	h := messaging.Typed(func(_ context.Context, _ event.Event, o order) error {
		fmt.Println("bill", o.ID)
		return nil
	})
	good, _ := event.New("/shop", "order.placed", order{ID: "A1"})
	bad, _ := event.New("/shop", "order.placed", []int{1})
	bad.SetID("17")
	fmt.Println(h(context.Background(), good))
	fmt.Println(h(context.Background(), bad)) // a reactor rejects it
	// Output:
	// bill A1
	// <nil>
	// messaging: event "17" of type "order.placed" is no messaging_test.order: event: data: json: cannot unmarshal array into Go value of type messaging_test.order
}

func ExamplePartitionKey() {
	e, _ := event.New("/shop", "order.placed", nil)
	fmt.Println(messaging.PartitionKey(e))
	e.SetSubject("customer/4711")
	fmt.Println(messaging.PartitionKey(e))
	e.SetExtension("partitionkey", "4711")
	fmt.Println(messaging.PartitionKey(e))
	// Output:
	// /shop
	// customer/4711
	// 4711
}
