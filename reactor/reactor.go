// Package reactor runs a handler on what a source delivers: it receives,
// calls the handler, and settles the delivery by what the handler returned.
//
//	err := reactor.Run(ctx, src, func(ctx context.Context, o Order) error {
//		return ship(ctx, o)
//	}, &reactor.Options[Order]{Concurrency: 8})
//
// A [Source] hands out a [Delivery] at a time. A delivery is settled once: it is
// acked (done), retried (failed, again after a delay), rejected (failed for
// good) or released (given back, not a failure). [Run] does that by what a
// [Handler] returns, [RunBatch] for several at once; a [Reactor] is a Run with a
// name, a state and a pause, and a [Group] is a service of several.
//
// It works in a [testing/synctest] bubble with a source of the test's own
// [RUN-10]. The package knows nothing of events or brokers. IDs in brackets
// name the requirements of the contract, conformance/CONTRACT.md.
package reactor

import (
	"context"
	"errors"
	"time"
)

var (
	ErrSettled      = errors.New("reactor: delivery is settled already") // and stays so [ACK-6]
	ErrLost         = errors.New("reactor: delivery is lost")            // nothing was sent [ACK-7]
	ErrClosed       = errors.New("reactor: closed")                      // from Receive [RCV-1]
	ErrDrainTimeout = errors.New("reactor: drain timeout")               // cuts handlers off [RUN-3]
)

// A Source delivers values of one type. It is safe for concurrent use.
type Source[T any] interface {
	// Receive waits for the next delivery, which the caller owns and settles.
	// It returns the context's error, ErrClosed after Close, or another when
	// the source has ended by itself; then nothing was taken [RCV-1].
	Receive(ctx context.Context) (*Delivery[T], error)
	// Close ends the source and releases what it handed out and what it
	// fetched ahead [CLS-1]; Receives return ErrClosed. It is idempotent.
	Close() error
}

// A Handler handles one value. What it returns settles the delivery [RUN-1]:
// nil acks; an error retries after Options.Backoff, or as [RetryAfter] or
// [Reject] says, which may be wrapped. Deliveries repeat: a handler does the
// same thing twice without harm. The context carries the [Info]. It ends when
// the delivery is lost [RUN-5] or a drain takes too long [RUN-3], with [ErrLost]
// or [ErrDrainTimeout] as its cause, and when the handler has returned.
type Handler[T any] func(ctx context.Context, v T) error

// Info says what is known of a delivery beside its value.
type Info struct {
	Attempt     int               // 1 and the failed deliveries before this one [RCV-2]
	MaxAttempts int               // the failed delivery that is the last; 0: none is
	Sequence    uint64            // the value's position in its log; 0: unknown
	Stored      time.Time         // when the log stored it; zero: unknown
	Annotations map[string]string // why a dead letter died, for one; read-only
	Native      any               // the provider's own message; nil: there is none
}

// Last reports whether the value is not delivered again if this one fails.
func (i Info) Last() bool { return i.MaxAttempts > 0 && i.Attempt >= i.MaxAttempts }

type rejectError struct{ err error }

func (e *rejectError) Error() string { return e.err.Error() }
func (e *rejectError) Unwrap() error { return e.err }

// Reject marks err as final: the delivery of a handler that returns it is
// rejected, with its text as the reason [RUN-1]. Reject(nil) is nil.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &rejectError{err}
}

// A releaseError is what middleware returns that has not called its handler.
type releaseError struct{ reason string }

func (e *releaseError) Error() string { return e.reason }

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// RetryAfter gives err a delay of its own, instead of Options.Backoff [RUN-1]:
// [MaxRetryDelay] at most. RetryAfter(nil, d) is nil.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err, after}
}
