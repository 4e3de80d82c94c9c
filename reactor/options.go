package reactor

import (
	"fmt"
	"time"
)

// Options are the settings of a [Run]. The zero value and nil stand for the
// defaults. A Run only reads them.
type Options[T any] struct {
	// Concurrency is how many handlers run at once, at most [RUN-2].
	// Default 1: one value after another, in the order received.
	Concurrency int

	// Backoff says how long a value waits for its next attempt after the
	// given one failed, 1 being the first; more than MaxRetryDelay counts as
	// that. It may be called concurrently. Default: exponential from 100 ms
	// to 1 min with jitter [RUN-7], as [Exponential] makes it.
	Backoff func(attempt int) time.Duration

	// DrainTimeout is how long handlers may go on after Run was told to stop,
	// before their contexts are cancelled with ErrDrainTimeout [RUN-3].
	// Default 30 s.
	DrainTimeout time.Duration

	// Observer is told what happens. Default: nobody is.
	Observer *Observer[T]
}

// defaultDrainTimeout is how long a drain takes at most unless Options say
// otherwise.
const defaultDrainTimeout = 30 * time.Second

// withDefaults returns a copy of o, which may be nil, with its zero fields
// filled in, or an error that names a field out of its range.
func (o *Options[T]) withDefaults() (Options[T], error) {
	var out Options[T]
	if o != nil {
		out = *o
	}
	switch {
	case out.Concurrency < 0:
		return out, fmt.Errorf("reactor: Concurrency is %d: must be 1 or more, or 0 for the default", out.Concurrency)
	case out.DrainTimeout < 0:
		return out, fmt.Errorf("reactor: DrainTimeout is %v: must be positive, or 0 for the default", out.DrainTimeout)
	}
	if out.Concurrency == 0 {
		out.Concurrency = 1
	}
	if out.Backoff == nil {
		out.Backoff = defaultBackoff
	}
	if out.DrainTimeout == 0 {
		out.DrainTimeout = defaultDrainTimeout
	}
	if out.Observer == nil {
		out.Observer = &Observer[T]{}
	}
	return out, nil
}

// An Observer is told what a [Run] does. Functions that are nil are left out.
// They are called from the goroutine that does the thing, several at once when
// Concurrency is above one, with no lock held; Run waits for them to return.
type Observer[T any] struct {
	// Received is called with each delivery, before its handler.
	Received func(v T, info Info)

	// Settled is called after each try to settle a delivery, so more than
	// once when a try fails and is repeated [RUN-9].
	Settled func(v T, info Info, s Settlement)
}

// A Settlement is one try to settle a delivery.
type Settlement struct {
	Outcome Outcome
	// Cause is what the handler returned, a [*PanicError] if it panicked.
	Cause error
	// Duration is how long the handler took; 0 when it was never called.
	Duration time.Duration
	// Err is what the try failed with; nil: the delivery is settled.
	Err error
}
