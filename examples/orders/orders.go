package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// An order is the data of the events that begin with "order.": order.placed,
// order.paid.card, order.paid.invoice and order.cancelled.
type order struct {
	ID      string `json:"id"`
	Number  int    `json:"number"`
	Amount  int    `json:"amount"`  // in cents
	Payment string `json:"payment"` // card or invoice
}

// UnmarshalJSON looks at what it reads: events come from anywhere, and what is
// no order is rejected by messaging.Typed.
func (o *order) UnmarshalJSON(b []byte) error {
	type plain order
	if err := json.Unmarshal(b, (*plain)(o)); err != nil {
		return err
	}
	switch {
	case o.ID == "":
		return errors.New("it has no id")
	case o.Payment != "card" && o.Payment != "invoice":
		return fmt.Errorf("payment is %q, must be card or invoice", o.Payment)
	}
	return nil
}

// poison is the number of the order that nobody can bill.
const poison = 13

// makeOrders returns a feed of n orders, some of which are cancelled: in
// batches, and not faster than one can watch.
func makeOrders(n int) feed {
	const (
		batch = 25
		pause = 25 * time.Millisecond
	)
	return func(ctx context.Context, p messaging.Publisher) error {
		run := strconv.FormatInt(time.Now().UnixMilli(), 36)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for first := 1; first <= n; first += batch {
			var events []event.Event
			for number := first; number < first+batch && number <= n; number++ {
				o := order{
					ID:      fmt.Sprintf("%s-%05d", run, number),
					Number:  number,
					Amount:  100 + number*7919%50_000,
					Payment: "card",
				}
				if number%3 == 0 {
					o.Payment = "invoice"
				}
				if number == poison {
					o.Amount = -o.Amount
				}
				types := []string{"order.placed"}
				if number%10 == 0 {
					types = append(types, "order.cancelled")
				}
				for _, typ := range types {
					e, err := event.New("/shop", typ, o)
					if err != nil {
						return err
					}
					events = append(events, e)
				}
			}
			if err := publish(ctx, p, events...); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}

// publish publishes what is not to be torn apart by Ctrl-C: it goes on for a
// while after ctx has ended, because a Publish that is cancelled under way
// leaves it open what was stored.
func publish(ctx context.Context, p messaging.Publisher, events ...event.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(patience, cancel)
		context.AfterFunc(lasting, func() { timer.Stop() })
	})()
	return p.Publish(lasting, events...)
}
