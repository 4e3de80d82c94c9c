package reactor

import (
	"fmt"
	"time"
)

// Options are the settings of a [Run], which only reads them; nil: defaults.
type Options[T any] struct {
	// Concurrency is how many handlers run at once, at most [RUN-2]. Default 1:
	// one value after another, in the order received.
	Concurrency int

	// Key has values of one key handled one at a time in the order received,
	// across retries: the others of the key wait until a failed one comes
	// again, for AckWait more than its delay at most [RUN-2]. What waits is in
	// flight, of which the source gives so much, and Run takes 16384. Another
	// Run knows nothing of this one's keys. Default: there are none.
	Key func(v T) string

	// Backoff says how long a value waits after the given attempt failed, 1
	// being the first; MaxRetryDelay at most. It may be called concurrently.
	// Default: [Exponential] from 100 ms to 1 min [RUN-7].
	Backoff func(attempt int) time.Duration

	DrainTimeout time.Duration // how long handlers may go on [RUN-3]; default 30 s
	IdleTimeout  time.Duration // ends a Run with nothing to do, or to retry; 0: never
	BatchSize    int           // for [RunBatch] alone; default 100
	BatchWait    time.Duration // for [RunBatch] alone; default 100 ms
	Observer     *Observer[T]  // default: nobody is told
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
	case out.IdleTimeout < 0:
		return out, fmt.Errorf("reactor: IdleTimeout is %v: must be positive, or 0 for none", out.IdleTimeout)
	case out.BatchSize < 0:
		return out, fmt.Errorf("reactor: BatchSize is %d: must be 1 or more, or 0 for the default", out.BatchSize)
	case out.BatchWait < 0:
		return out, fmt.Errorf("reactor: BatchWait is %v: must be positive, or 0 for the default", out.BatchWait)
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
