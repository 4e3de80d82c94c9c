package reactor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// A group runs the reactors of a service, and says whether it is ready.
func ExampleGroup() {
	states := &reactor.Observer[string]{
		State: func(name string, s reactor.Status) { fmt.Println(name, "is", s.State) },
	}
	open := func(context.Context) (reactor.Source[string], error) { return of("order 1"), nil }
	handle := func(context.Context, string) error { return nil }

	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	group := reactor.Group{
		Reactors: []*reactor.Reactor{
			reactor.New("billing", open, handle, &reactor.Options[string]{Observer: states, IdleTimeout: 10 * time.Millisecond}),
		},
		DrainTimeout: 20 * time.Second,
		Started:      func() { close(started) },
	}
	fmt.Println(group.Check(ctx))
	go func() {
		<-started
		fmt.Println("ready:", group.Check(ctx) == nil)
		// On a signal: cancel()
	}()
	fmt.Println(group.Run(ctx))
	cancel()
	// Unordered output:
	// reactor "billing" is stopped
	// billing is starting
	// billing is running
	// ready: true
	// order 1 was acked
	// billing is draining
	// billing is finished
	// <nil>
}

// A reactor that is paused receives nothing: for the time of a migration, say.
func ExampleReactor_Pause() {
	src := &orders{ids: make(chan string)}
	open := func(context.Context) (reactor.Source[string], error) { return src, nil }
	begun := make(chan struct{})
	r := reactor.New("billing", open, func(context.Context, string) error {
		begun <- struct{}{}
		return nil
	}, nil)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	src.ids <- "order 1"
	<-begun

	// What had begun has ended when Pause returns.
	fmt.Println(r.Pause(ctx), r.Status().State)
	r.Resume()
	src.ids <- "order 2"
	<-begun
	cancel()
	fmt.Println(<-ended, r.Status().State)
	// Output:
	// order 1 was acked
	// <nil> paused
	// order 2 was acked
	// <nil> stopped
}

// NewBatch is for a handler of batches.
func ExampleNewBatch() {
	open := func(context.Context) (reactor.Source[string], error) { return of("order 1", "order 2"), nil }
	r := reactor.NewBatch("projection", open, func(_ context.Context, batch []*reactor.Delivery[string]) error {
		fmt.Println(len(batch), "at once")
		return nil
	}, &reactor.Options[string]{BatchWait: 10 * time.Millisecond, IdleTimeout: 10 * time.Millisecond})
	fmt.Println(r.Run(context.Background()), r.Status().State)
	// Output:
	// 2 at once
	// order 1 was acked
	// order 2 was acked
	// <nil> finished
}
