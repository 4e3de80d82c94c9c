package messaging_test

import (
	"context"
	"fmt"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// One service answers what another asks.
func ExampleRequester() {
	broker := memory.New(nil)
	defer broker.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	go func() {
		sub := messaging.Subscription{Name: "prices", Types: []string{"price.asked"}}
		_ = messaging.React(ctx, broker, sub, messaging.Reply(broker, func(_ context.Context, ask event.Event) (event.Event, error) {
			return event.New("/prices", "price.quoted", ask.Subject()+" costs 42")
		}), nil)
	}()

	r, err := messaging.NewRequester(ctx, broker)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()

	ask, _ := event.New("/shop", "price.asked", nil)
	ask.SetSubject("tea")
	answer, err := r.Request(ctx, ask)
	fmt.Println(answer.Type(), string(answer.Data()), err)
	// Output: price.quoted "tea costs 42" <nil>
}
