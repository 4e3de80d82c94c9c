// Package reactor runs a handler on what a source delivers: it receives,
// calls the handler, and settles the delivery by what the handler returned.
//
//	err := reactor.Run(ctx, src, func(ctx context.Context, o Order) error {
//		return ship(ctx, o)
//	}, &reactor.Options[Order]{Concurrency: 8})
//
// # Usage
//
// A [Source] hands out a [Delivery] at a time. A delivery is settled once: it
// is acked (done), retried (failed, again after a delay), rejected (failed for
// good) or released (given back, not a failure). [Run] does that for a
// [Handler], whose returned error decides: nil acks, an error retries after a
// backoff, [Reject] and [RetryAfter] say otherwise.
//
// # Concurrency
//
// Run calls at most Options.Concurrency handlers at once, one by default. It
// starts goroutines as deliveries need them and returns after the last of them
// has ended. A Delivery's methods are safe for concurrent use.
//
// # Shutdown
//
// When its context ends, Run stops receiving, lets running handlers finish,
// settles them and closes the source. A handler that outlives
// Options.DrainTimeout has its context cancelled with [ErrDrainTimeout], and
// its delivery is released.
//
// # Testing
//
// Everything here works in a [testing/synctest] bubble with a source of the
// test's own [RUN-10]: see [NewDelivery], and [WithInfo] for a handler alone.
//
// The package knows nothing of events or brokers and imports the standard
// library only. IDs in brackets name the requirements of the contract, which
// is kept in conformance/CONTRACT.md.
package reactor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrSettled is returned by a settle of a delivery that was settled
	// before; it changed nothing [ACK-6].
	ErrSettled = errors.New("reactor: delivery is settled already")

	// ErrLost is returned by a settle or an extend of a delivery whose
	// deadline has passed or which was given back by Close; nothing was sent
	// [ACK-7]. It is the cancellation cause of a handler's context when its
	// delivery is lost [RUN-5].
	ErrLost = errors.New("reactor: delivery is lost")

	// ErrClosed is returned by Receive after the source, or what it comes
	// from, was closed [RCV-1].
	ErrClosed = errors.New("reactor: source is closed")

	// ErrDrainTimeout is the cancellation cause of the context of a handler
	// that still ran DrainTimeout after Run was told to stop [RUN-3].
	ErrDrainTimeout = errors.New("reactor: drain timeout")
)

// A Source delivers values of one type to whoever receives from it.
type Source[T any] interface {
	// Receive waits for the next delivery. It returns the context's error
	// when ctx ends first, ErrClosed after Close, and another error when the
	// source has ended by itself; then nothing was taken [RCV-1]. The caller
	// owns the delivery and settles it. Receive is safe for concurrent use.
	Receive(ctx context.Context) (*Delivery[T], error)

	// Close ends the source and releases what it handed out and what it
	// fetched ahead [CLS-1]. Receives in progress return ErrClosed. Close is
	// idempotent and safe for concurrent use.
	Close() error
}

// A Handler handles one value. What it returns settles the delivery [RUN-1]:
// nil acks; an error retries after Options.Backoff, one made by [RetryAfter]
// after that delay; one made by [Reject] rejects. Errors are looked through
// with [errors.As], so both may be wrapped.
//
// The context carries the delivery's [Info] and is cancelled when the delivery
// is lost [RUN-5] or a drain takes too long [RUN-3], with [ErrLost] or
// [ErrDrainTimeout] as its cause, and after the handler returned. Deliveries
// repeat: a handler does the same thing twice without harm.
type Handler[T any] func(ctx context.Context, v T) error

// Info says what is known of a delivery beside its value.
type Info struct {
	// Attempt is 1 plus the number of failed deliveries of the same value
	// before this one [RCV-2].
	Attempt int
	// MaxAttempts is the failed delivery at which the source gives up on the
	// value; 0: never.
	MaxAttempts int
	// Sequence is the value's position in its log; 0 where unknown.
	Sequence uint64
	// Stored is when the log stored the value; zero where unknown.
	Stored time.Time
	// Annotations are what a provider says beside the value, such as why a
	// dead letter died. The map is read-only, and nil when there are none.
	Annotations map[string]string
	// Native is the provider's own message; nil where there is none.
	Native any
}

// Last reports whether a failure of this delivery is the value's last: it is
// then not delivered again.
func (i Info) Last() bool { return i.MaxAttempts > 0 && i.Attempt >= i.MaxAttempts }

type infoKey struct{}

// WithInfo returns a copy of ctx that carries info, as [Run] gives a handler:
// for tests of a handler alone, and for those who call handlers themselves.
func WithInfo(ctx context.Context, info Info) context.Context {
	return context.WithValue(ctx, infoKey{}, &info)
}

// InfoFrom returns the Info of the delivery that a handler's context belongs
// to [RUN-5], and the zero Info for any other context.
func InfoFrom(ctx context.Context) Info {
	if info, ok := ctx.Value(infoKey{}).(*Info); ok {
		return *info
	}
	return Info{}
}

type rejectError struct{ err error }

func (e *rejectError) Error() string { return e.err.Error() }
func (e *rejectError) Unwrap() error { return e.err }

// Reject marks err as final: a handler that returns it has its delivery
// rejected instead of retried, with the error's text as the reason [RUN-1].
// Reject(nil) is nil.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &rejectError{err}
}

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// RetryAfter gives err a delay of its own: a handler that returns it has its
// delivery retried after that long instead of after Options.Backoff [RUN-1];
// at once when after is not positive, [MaxRetryDelay] at most.
// RetryAfter(nil, d) is nil.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err, after}
}

// BatchError says for each value of a batch what became of it.
type BatchError struct {
	// Errors has one error for each value, in the batch's order; nil: done.
	Errors []error
}

// Error counts the failures and quotes the first.
func (e *BatchError) Error() string {
	failed, first := 0, -1
	for i, err := range e.Errors {
		if err != nil {
			if failed++; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return "no failures in a batch"
	}
	return fmt.Sprintf("%d of %d failed, first at index %d: %v", failed, len(e.Errors), first, e.Errors[first])
}

// Unwrap returns the errors that are not nil, for [errors.Is] and [errors.As].
func (e *BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e.Errors {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
