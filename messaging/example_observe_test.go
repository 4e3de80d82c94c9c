package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// logger logs what matters without the time.
func logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// A service: two handlers that run together, and what happens is logged.
func ExampleNewReactor() {
	broker := memory.New(nil)
	defer broker.Close()
	opts := &messaging.Options{Observer: messaging.Log(logger(slog.LevelInfo)), IdleTimeout: 20 * time.Millisecond}
	group := reactor.Group{Reactors: []*reactor.Reactor{
		messaging.NewReactor(broker, messaging.Subscription{Name: "billing"}, func(context.Context, event.Event) error {
			return reactor.Reject(errors.New("no such customer"))
		}, opts),
	}}

	e, _ := event.New("/shop", "order.placed", "an order")
	e.SetID("1")
	_ = broker.Publish(context.Background(), e)
	if err := group.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// level=INFO msg="reactor starting" reactor=billing
	// level=INFO msg="reactor running" reactor=billing
	// level=ERROR msg=rejected id=1 source=/shop type=order.placed attempt=1 sequence=1 cause="no such customer"
	// level=INFO msg="reactor draining" reactor=billing
	// level=INFO msg="reactor finished" reactor=billing
}

// Operators subscribe to what reactors are about.
func ExampleStateEvents() {
	broker := memory.New(nil)
	defer broker.Close()
	ctx := context.Background()

	work := messaging.Subscription{Name: "billing", Types: []string{"order.>"}}
	_ = messaging.NewReactor(broker, work, func(context.Context, event.Event) error { return nil }, &messaging.Options{
		Observer:    messaging.StateEvents(broker, "/shop"),
		IdleTimeout: 10 * time.Millisecond,
	}).Run(ctx)

	states := messaging.Subscription{Name: "states", Types: []string{"catchment.reactor.*"}}
	_ = messaging.React(ctx, broker, states, func(_ context.Context, e event.Event) error {
		fmt.Println(e.Subject(), e.Type(), string(e.Data()))
		return nil
	}, &messaging.Options{IdleTimeout: 10 * time.Millisecond})
	// Output:
	// billing catchment.reactor.ready {"state":"running"}
	// billing catchment.reactor.finished {"state":"finished"}
}

// Publishes are observed, too.
func ExampleObserve() {
	inner := memory.New(nil)
	defer inner.Close()
	broker := messaging.Observe(inner, messaging.Log(logger(slog.LevelDebug)))

	e, _ := event.New("/shop", "order.placed", "an order")
	_ = broker.Publish(context.Background(), e)
	e.SetType("")
	_ = broker.Publish(context.Background(), e)

	admin, err := messaging.AdminOf(broker)
	fmt.Println(admin == messaging.Admin(inner), err)
	// Output:
	// level=DEBUG msg=published events=1
	// level=ERROR msg="publish failed" events=1 error="messaging: invalid: event: attribute \"type\": must not be blank"
	// true <nil>
}
