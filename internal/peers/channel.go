package main

import (
	"context"

	"github.com/catchment-events/catchment/event"
)

// openChannel is what a program without any library would do in the process.
func openChannel(_ context.Context, s site) (*link, error) {
	if s.stored {
		return &link{close: func() error { return nil }}, nil
	}
	c := make(chan event.Event, 1024)
	return &link{
		publish: func(ctx context.Context, e event.Event) error {
			select {
			case c <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		subscribe: func(context.Context) (member, error) {
			return func(ctx context.Context, handle handler) error {
				for {
					select {
					case e := <-c:
						if !handle(e.ID()) {
							return nil
						}
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}, nil
		},
		close: func() error { return nil },
	}, nil
}
