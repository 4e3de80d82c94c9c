package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// orders is a source of the program's own: it hands out what it was given, and
// prints what becomes of it.
type orders struct{ ids chan string }

func (o *orders) Receive(ctx context.Context) (*reactor.Delivery[string], error) {
	select {
	case id, ok := <-o.ids:
		if !ok {
			return nil, reactor.ErrClosed
		}
		return reactor.NewDelivery(id, reactor.Info{Attempt: 1}, time.Time{}, printer{id}), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (o *orders) Close() error { return nil }

type printer struct{ id string }

func (p printer) Settle(_ context.Context, o reactor.Outcome) error {
	fmt.Println(p.id, "was", o.Result)
	return nil
}

func (p printer) Extend(context.Context) (time.Time, error) { return time.Time{}, nil }

// What a handler returns settles the delivery.
func ExampleRun() {
	src := &orders{ids: make(chan string, 3)}
	src.ids <- "order 1"
	src.ids <- "order 2"
	src.ids <- "order 3"
	close(src.ids)

	err := reactor.Run(context.Background(), src, func(_ context.Context, id string) error {
		switch id {
		case "order 2":
			return errors.New("the warehouse does not answer")
		case "order 3":
			return reactor.Reject(errors.New("there is no such customer"))
		}
		return nil
	}, nil)
	fmt.Println(err)
	// Output:
	// order 1 was acked
	// order 2 was retried
	// order 3 was rejected
	// reactor: closed
}

// A handler can be tested alone, in any attempt.
func ExampleWithInfo() {
	handle := func(ctx context.Context, id string) error {
		if reactor.InfoFrom(ctx).Last() {
			fmt.Println("giving up on", id)
		}
		return errors.New("the warehouse does not answer")
	}
	ctx := reactor.WithInfo(context.Background(), reactor.Info{Attempt: 5, MaxAttempts: 5})
	fmt.Println(handle(ctx, "order 1"))
	// Output:
	// giving up on order 1
	// the warehouse does not answer
}

// A panic ends Run; behind Recover it is an error like any other.
func ExampleRecover() {
	handle := reactor.Recover(func(context.Context, string) error { panic("no") })
	err := handle(context.Background(), "order 1")
	if p, ok := errors.AsType[*reactor.PanicError](err); ok {
		fmt.Println("panic:", p.Value)
	}
	// Output: panic: no
}

// RetryAfter gives a failure a delay of its own, Reject makes it final.
func ExampleRetryAfter() {
	busy := errors.New("429 too many requests")
	err := reactor.RetryAfter(busy, 30*time.Second)
	fmt.Println(err, errors.Is(err, busy))
	// Output: 429 too many requests true
}
