package memory_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// A handler that adds to a balance goes wrong when an event comes twice. On a
// hostile broker that is found out in no time; and so is that the handler which
// remembers the source and id of what it has added does not.
func ExampleHostile() {
	const events = 10_000
	sum := func(handler func(balance *int) messaging.Handler) (balance int) {
		synctest.Test(new(testing.T), func(*testing.T) { // in a test, its own T
			broker := memory.New(&memory.Options{Hostile: &memory.Hostile{Seed: 1}})
			defer broker.Close()
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error)
			go func() {
				done <- messaging.React(ctx, broker, messaging.Subscription{Name: "balance"}, handler(&balance), nil)
			}()
			for first := 0; first < events; first += 100 {
				var batch []event.Event
				for i := range 100 {
					e, _ := event.New("/till", "paid", 1)
					e.SetID(strconv.Itoa(first + i))
					batch = append(batch, e)
				}
				for broker.Publish(ctx, batch...) != nil { // again, until all are stored
				}
			}
			time.Sleep(time.Hour) // of virtual time
			stop()
			if err := <-done; err != nil {
				fmt.Println(err)
			}
		})
		return balance
	}

	naive := sum(func(balance *int) messaging.Handler {
		return func(context.Context, event.Event) error {
			*balance++
			return nil
		}
	})
	careful := sum(func(balance *int) messaging.Handler {
		type key struct{ source, id string }
		seen := make(map[key]bool)
		return func(_ context.Context, e event.Event) error {
			if k := (key{e.Source(), e.ID()}); !seen[k] {
				seen[k] = true
				*balance++
			}
			return nil
		}
	})
	fmt.Println("naive:", naive == events)
	fmt.Println("careful:", careful == events)
	// Output:
	// naive: false
	// careful: true
}
