package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// A broker is ready when it is made. What is published is delivered to each
// subscription, and again until it is acked.
func ExampleNew() {
	broker := memory.New(nil)
	defer broker.Close()
	ctx := context.Background()

	src, err := broker.Subscribe(ctx, messaging.Subscription{Name: "billing"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	placed, err := event.New("/shop", "order.placed", map[string]string{"id": "A1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := broker.Publish(ctx, placed, placed); err != nil { // the second is a duplicate
		fmt.Println(err)
		return
	}

	first, _ := src.Receive(ctx)
	fmt.Println(first.Value.Type(), string(first.Value.Data()), "attempt", first.Info.Attempt)
	fmt.Println(first.Retry(ctx, 0))
	second, _ := src.Receive(ctx)
	fmt.Println(second.Value.Type(), string(second.Value.Data()), "attempt", second.Info.Attempt)
	fmt.Println(second.Ack(ctx))
	// Output:
	// order.placed {"id":"A1"} attempt 1
	// <nil>
	// order.placed {"id":"A1"} attempt 2
	// <nil>
}

// A bounded broker refuses what does not fit.
func ExampleOptions() {
	broker := memory.New(&memory.Options{MaxEvents: 1})
	defer broker.Close()
	for range 2 {
		e, _ := event.New("/shop", "order.placed", nil)
		err := broker.Publish(context.Background(), e)
		fmt.Println(errors.Is(err, messaging.ErrFull))
	}
	// Output:
	// false
	// true
}

// Inject puts a message into the log that is no event, as another program
// might.
func ExampleBroker_Inject() {
	broker := memory.New(nil)
	defer broker.Close()
	_ = broker.Inject(map[string][]string{"ce-id": {"1"}}, []byte("what?"))
	e, _ := event.New("/shop", "order.placed", nil)
	_ = broker.Publish(context.Background(), e)

	src, _ := broker.Subscribe(context.Background(), messaging.Subscription{Name: "billing"}, func(_ context.Context, err error) {
		if bad, ok := errors.AsType[*messaging.DecodeError](err); ok {
			fmt.Printf("message %d is no event: %s\n", bad.Sequence, bad.Body)
		}
	})
	d, _ := src.Receive(context.Background())
	fmt.Println("message", d.Info.Sequence, "is", d.Value.Type())
	// Output:
	// message 1 is no event: what?
	// message 2 is order.placed
}

// shipping is a service: it depends on a subscriber and knows no provider.
func shipping(ctx context.Context, s messaging.Subscriber, ship func(order string) error) error {
	return messaging.React(ctx, s, messaging.Subscription{Name: "shipping", Types: []string{"order.paid"}},
		func(_ context.Context, e event.Event) error { return ship(e.Subject()) }, nil)
}

// TestShipping tests a service in virtual time: an hour of outage takes no
// time, and every pause is exact.
func TestShipping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memory.New(nil)
		defer broker.Close()
		ctx, stop := context.WithCancel(t.Context())
		outage := time.Now().Add(time.Hour)
		var shipped []string
		done := make(chan error)
		go func() {
			done <- shipping(ctx, broker, func(order string) error {
				if time.Now().Before(outage) {
					return errors.New("no lorries")
				}
				shipped = append(shipped, order)
				return nil
			})
		}()

		e, err := event.New("/shop", "order.paid", nil)
		if err != nil {
			t.Fatal(err)
		}
		e.SetSubject("A1")
		if err := broker.Publish(ctx, e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Minute) // the longest backoff is a minute
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Errorf("shipping ended with %v", err)
		}
		if len(shipped) != 1 || shipped[0] != "A1" {
			t.Errorf("shipped %q, want A1", shipped)
		}
	})
}
