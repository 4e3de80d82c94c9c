package messaging_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

type order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

// A service reacts to events under a name of its own, until its context ends.
func ExampleReact() {
	broker := memory.New(nil)
	defer broker.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	placed, err := event.New("/shop", "order.placed", order{ID: "A1", Total: 42})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := broker.Publish(ctx, placed); err != nil {
		fmt.Println(err)
		return
	}

	err = messaging.React(ctx, broker, messaging.Subscription{
		Name:  "billing",
		Types: []string{"order.placed"},
	}, func(_ context.Context, e event.Event) error {
		o, err := event.Data[order](e)
		if err != nil {
			return reactor.Reject(err) // it never will be an order
		}
		fmt.Println("bill", o.ID, "of", o.Total)
		stop() // this example has seen enough
		return nil
	}, nil)
	fmt.Println(err)
	// Output:
	// bill A1 of 42
	// <nil>
}

// What a subscription gave up on stands in its dead letters, which are read
// like a log.
func ExampleDeadLetterFrom() {
	broker := memory.New(nil)
	defer broker.Close()
	ctx, stop := context.WithCancel(context.Background())

	placed, _ := event.New("/shop", "order.placed", order{ID: "A1"})
	_ = broker.Publish(ctx, placed)
	sub := messaging.Subscription{Name: "billing"}
	_ = messaging.React(ctx, broker, sub, func(context.Context, event.Event) error {
		stop()
		return reactor.Reject(errors.New("no such customer"))
	}, nil)

	ctx, stop = context.WithCancel(context.Background())
	sub = messaging.Subscription{Name: "repair", DeadLettersOf: "billing"}
	_ = messaging.React(ctx, broker, sub, func(ctx context.Context, e event.Event) error {
		d, _ := messaging.DeadLetterFrom(reactor.InfoFrom(ctx))
		fmt.Println(e.Type(), "died in", d.Subscription, "after", d.Attempts, "attempt:", d.Reason)
		stop()
		return nil
	}, nil)
	// Output: order.placed died in billing after 1 attempt: no such customer
}

// Settings are compared when a second member joins.
func ExampleSubscription_Conflict() {
	have, _ := messaging.Subscription{Name: "billing", Types: []string{"order.placed"}}.Normalize()
	asked, _ := messaging.Subscription{Name: "billing", Types: []string{"order.>"}}.Normalize()
	fmt.Println(asked.Conflict(have))
	// Output: messaging: subscription exists with other settings: subscription "billing": Types is [order.placed], asked for [order.>]
}
