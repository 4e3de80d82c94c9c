package reactor

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Recover makes a panic of h, which would end Run, a [*PanicError] [RUN-6].
func Recover[T any](h Handler[T]) Handler[T] {
	return func(ctx context.Context, v T) error {
		p, err := call(ctx, h, v)
		if p != nil {
			return p
		}
		return err
	}
}

// Timeout ends the context of each call of h after that long, and waits for h.
// The limit is named by the context's cause, and by what h then fails with.
func Timeout[T any](h Handler[T], limit time.Duration) Handler[T] {
	mustBePositive("Timeout", "limit", limit)
	tooLong := fmt.Errorf("reactor: the handler took longer than %v: %w", limit, context.DeadlineExceeded)
	return func(ctx context.Context, v T) error {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, tooLong)
		defer cancel()
		err := h(ctx, v)
		if err != nil && context.Cause(ctx) == tooLong {
			return fmt.Errorf("%w: %w", tooLong, err)
		}
		return err
	}
}

// Limit calls h burst times at once, and then once per interval: a call waits for
// its turn, unless its context ends or its Run stops; then it is released.
func Limit[T any](h Handler[T], interval time.Duration, burst int) Handler[T] {
	mustBePositive("Limit", "interval", interval)
	mustBePositive("Limit", "burst", burst)
	spare := interval * time.Duration(min(int64(burst-1), math.MaxInt64/int64(interval))) // without overflow
	// Who fills next waits for the next turn, and last, that of the last call, is its.
	next := make(chan struct{}, 1)
	var last time.Time
	turn := func(ctx context.Context) error {
		select {
		case next <- struct{}{}:
		case <-ctx.Done():
			return errNotHandled
		case <-stopping(ctx):
			return errNotHandled
		}
		defer func() { <-next }()
		// With nobody here for long, burst turns were saved.
		at := last.Add(interval)
		if saved := time.Now().Add(-spare); at.Before(saved) {
			at = saved
		}
		err := waitFor(ctx, time.Until(at))
		if err == nil {
			last = at // a wait that was given up takes no turn
		}
		return err
	}
	return func(ctx context.Context, v T) error {
		if err := turn(ctx); err != nil {
			return err
		}
		return h(ctx, v)
	}
}

func mustBePositive[N int | time.Duration](function, name string, n N) {
	if n <= 0 {
		panic(fmt.Sprintf("reactor: %s: %s is %v: must be positive", function, name, n))
	}
}

// waitFor waits, unless the context ends, or the Run of its handler stops.
func waitFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	case <-stopping(ctx):
	}
	return errNotHandled
}

// stopping is closed when the Run that a handler's context is of stops receiving.
func stopping(ctx context.Context) <-chan struct{} {
	if c := controlFrom(ctx); c != nil {
		return c.stop().Done()
	}
	return nil
}

var errNotHandled = &releaseError{"reactor: ended before it was handled"}
