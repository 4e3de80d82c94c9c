package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// of returns a source that has these values and nothing more.
func of(ids ...string) *orders {
	src := &orders{ids: make(chan string, len(ids))}
	for _, id := range ids {
		src.ids <- id
	}
	return src
}

// Orders of one customer are handled in their order, those of others at the same
// time. The command ends when there is nothing left.
func ExampleOptions_key() {
	src := of("ann: buy", "bob: buy", "ann: cancel", "bob: cancel")
	customer := func(order string) string { return strings.Split(order, ":")[0] }
	handled := make(chan string, 4)
	bob := make(chan struct{})
	err := reactor.Run(context.Background(), quiet{src}, func(_ context.Context, order string) error {
		if order == "ann: buy" {
			<-bob // holds up ann, not bob
		}
		handled <- order
		if order == "bob: cancel" {
			close(bob)
		}
		return nil
	}, &reactor.Options[string]{Concurrency: 2, Key: customer, IdleTimeout: 100 * time.Millisecond})
	close(handled)
	for order := range handled {
		fmt.Println(order)
	}
	fmt.Println(err)
	// Output:
	// bob: buy
	// bob: cancel
	// ann: buy
	// ann: cancel
	// <nil>
}

// quiet settles without a word.
type quiet struct{ *orders }

func (q quiet) Receive(ctx context.Context) (*reactor.Delivery[string], error) {
	d, err := q.orders.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return reactor.NewDelivery(d.Value, d.Info, time.Time{}, silent{}), nil
}

type silent struct{ printer }

func (silent) Settle(context.Context, reactor.Outcome) error { return nil }

// A projection writes a batch in one transaction. What cannot be written is
// named, and the rest is done.
func ExampleRunBatch() {
	src := of("order 1", "order 2", "order 3")
	err := reactor.RunBatch(context.Background(), src, func(_ context.Context, batch []*reactor.Delivery[string]) error {
		fmt.Println("a transaction of", len(batch))
		errs := make([]error, len(batch))
		for i, d := range batch {
			if d.Value == "order 2" {
				errs[i] = reactor.Reject(errors.New("no such customer"))
			}
		}
		return &reactor.BatchError{Errors: errs}
	}, &reactor.Options[string]{BatchSize: 3, IdleTimeout: 10 * time.Millisecond})
	fmt.Println(err)
	// Output:
	// a transaction of 3
	// order 1 was acked
	// order 2 was rejected
	// order 3 was acked
	// <nil>
}

// An error can have a policy of its own: this one is tried three times, however
// often others are.
func ExampleRetryAfter_policy() {
	errBusy := errors.New("429 too many requests")
	handle := func(ctx context.Context, id string) error {
		err := errBusy // of a call
		switch attempt := reactor.InfoFrom(ctx).Attempt; {
		case errors.Is(err, errBusy) && attempt >= 3:
			return reactor.Reject(err)
		case errors.Is(err, errBusy):
			return reactor.RetryAfter(err, time.Duration(attempt)*time.Minute)
		}
		return err
	}
	for attempt := 1; attempt <= 3; attempt++ {
		src := &once{info: reactor.Info{Attempt: attempt}}
		_ = reactor.Run(context.Background(), src, handle, nil)
	}
	// Output:
	// attempt 1: retried after 1m0s
	// attempt 2: retried after 2m0s
	// attempt 3: rejected after 0s
}

// once hands out one delivery, and prints what becomes of it.
type once struct {
	info reactor.Info
	done bool
}

func (o *once) Receive(context.Context) (*reactor.Delivery[string], error) {
	if o.done {
		return nil, reactor.ErrClosed
	}
	o.done = true
	return reactor.NewDelivery("order", o.info, time.Time{}, o), nil
}

func (o *once) Settle(_ context.Context, out reactor.Outcome) error {
	fmt.Printf("attempt %d: %v after %v\n", o.info.Attempt, out.Result, out.After)
	return nil
}

func (o *once) Extend(context.Context) (time.Time, error) { return time.Time{}, nil }
func (o *once) Close() error                              { return nil }

// Middleware is put around a handler, the innermost first: of these, each call
// has ten seconds, there are a hundred calls in a second at most, and none for a
// minute after five failures in a row.
func ExampleBreaker() {
	handle := func(context.Context, string) error { return nil }
	handle = reactor.Timeout(handle, 10*time.Second)
	handle = reactor.Limit(handle, time.Second/100, 10)
	handle = reactor.Breaker(handle, 5, time.Minute)
	_ = reactor.Run(context.Background(), of("order 1"), handle, &reactor.Options[string]{IdleTimeout: 10 * time.Millisecond})
	// Output: order 1 was acked
}

// The limit is for each attempt.
func ExampleTimeout() {
	handle := reactor.Timeout(func(ctx context.Context, _ string) error {
		<-ctx.Done() // a call that hangs
		return ctx.Err()
	}, 10*time.Millisecond)
	err := handle(context.Background(), "order 1")
	fmt.Println(err, errors.Is(err, context.DeadlineExceeded))
	// Output: reactor: the handler took longer than 10ms: context deadline exceeded: context deadline exceeded true
}

// Two at once, and then one every 10 ms.
func ExampleLimit() {
	began := time.Now()
	handle := reactor.Limit(func(context.Context, string) error { return nil }, 10*time.Millisecond, 2)
	for range 4 {
		_ = handle(context.Background(), "order")
	}
	fmt.Println(time.Since(began) >= 20*time.Millisecond)
	// Output: true
}

// An observer counts; nobody pays for the functions that it does not have.
func ExampleObserver() {
	settled := make(map[reactor.Result]int) // of one handler at a time
	count := &reactor.Observer[string]{
		Settled: func(_ string, _ reactor.Info, s reactor.Settlement) { settled[s.Outcome.Result]++ },
	}
	tell := &reactor.Observer[string]{
		Received: func(v string, info reactor.Info) { fmt.Println(v, "in attempt", info.Attempt) },
	}
	_ = reactor.Run(context.Background(), quiet{of("order 1", "order 2")},
		func(context.Context, string) error { return nil },
		&reactor.Options[string]{Observer: reactor.Observers(count, tell), IdleTimeout: 10 * time.Millisecond})
	fmt.Println(settled)
	// Output:
	// order 1 in attempt 1
	// order 2 in attempt 1
	// map[acked:2]
}
