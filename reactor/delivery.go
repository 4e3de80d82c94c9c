package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// MaxRetryDelay is the longest delay that a retry may ask for [ACK-3].
const MaxRetryDelay = 24 * time.Hour

// Result is one of the four ways in which a delivery ends.
type Result uint8

// The results. The zero Result is none of them.
const (
	Acked    Result = iota + 1 // done
	Retried                    // failed; again, not before a delay
	Rejected                   // failed for good
	Released                   // given back; again at once, not a failure
)

func (r Result) String() string {
	switch r {
	case Acked:
		return "acked"
	case Retried:
		return "retried"
	case Rejected:
		return "rejected"
	case Released:
		return "released"
	}
	return fmt.Sprintf("result %d", uint8(r))
}

// Outcome is how a delivery is settled.
type Outcome struct {
	Result Result
	After  time.Duration // of a retry: not again before that; may be negative
	Reason string        // of a retry or a reject
}

// A Settler settles one delivery where it came from. Providers implement it,
// and so does [*Delivery], which calls it one at a time, not after the deadline,
// and not again after Settle returned nil.
type Settler interface {
	// Settle ends the delivery, or returns an error; then it may be repeated
	// [ACK-6], unless ErrLost says that somebody else has it, or will. ctx
	// bounds a wait for confirmation, and may have ended before [ACK-8].
	Settle(ctx context.Context, o Outcome) error
	// Extend starts the delivery's time anew. It returns the deadline when
	// the broker has confirmed that [ACK-5].
	Extend(ctx context.Context) (deadline time.Time, err error)
}

// A Delivery is one hand-over of one value, which belongs to the receiver. It
// is settled once, by Ack, Retry, Reject or Release, before its deadline
// [ACK-6, ACK-7]. It is safe for concurrent use: of settles that race, one is.
type Delivery[T any] struct {
	Value T
	Info  Info

	settler Settler

	mu sync.Mutex
	// Below: under mu.
	deadline time.Time
	settled  bool
	lost     bool
	busy     bool          // a call of settler is under way
	idle     chan struct{} // made by who waits for busy to end, closed then
}

// NewDelivery returns a delivery of v that s settles until deadline; zero: for
// ever. It is for providers, and for tests with a source of their own.
func NewDelivery[T any](v T, info Info, deadline time.Time, s Settler) *Delivery[T] {
	return &Delivery[T]{Value: v, Info: info, settler: s, deadline: deadline}
}

// Ack settles the delivery as done: the value is not delivered again [ACK-1].
// It returns ErrSettled, ErrLost, or why it failed; then it may be repeated.
// ctx bounds a wait for confirmation, and may have ended [ACK-8].
func (d *Delivery[T]) Ack(ctx context.Context) error {
	return d.Settle(ctx, Outcome{Result: Acked})
}

// Retry settles the delivery as failed: the value is delivered again, not
// before after, [MaxRetryDelay] at most [ACK-3]. Errors are as for Ack.
func (d *Delivery[T]) Retry(ctx context.Context, after time.Duration) error {
	return d.Settle(ctx, Outcome{Result: Retried, After: after})
}

// Reject settles the delivery as failed for good: the value goes to the dead
// letters, with the reason [ACK-4]. Errors are as for Ack.
func (d *Delivery[T]) Reject(ctx context.Context, reason string) error {
	return d.Settle(ctx, Outcome{Result: Rejected, Reason: reason})
}

// Release gives the delivery back: the value is delivered again at once, and the
// attempt does not count [ACK-9]. Errors are as for Ack.
func (d *Delivery[T]) Release(ctx context.Context) error {
	return d.Settle(ctx, Outcome{Result: Released})
}

// Settle ends the delivery as o says. Ack and the others are short for it.
func (d *Delivery[T]) Settle(ctx context.Context, o Outcome) error {
	switch o.Result {
	case Acked, Rejected, Released:
	case Retried:
		if o.After > MaxRetryDelay {
			return fmt.Errorf("reactor: retry after %v: %v is the longest delay", o.After, MaxRetryDelay)
		}
	default:
		return fmt.Errorf("reactor: settle with %v: must be acked, retried, rejected or released", o.Result)
	}
	if err := d.acquire(ctx); err != nil {
		return err
	}
	err := d.settler.Settle(ctx, o)
	d.mu.Lock()
	d.settled = err == nil
	d.lost = errors.Is(err, ErrLost)
	d.release()
	return err
}

// Extend keeps the delivery for another AckWait from now, or returns an error,
// ErrLost past the deadline, and changes nothing [ACK-5].
func (d *Delivery[T]) Extend(ctx context.Context) (deadline time.Time, err error) {
	if err := d.acquire(ctx); err != nil {
		return time.Time{}, err
	}
	deadline, err = d.settler.Extend(ctx)
	d.mu.Lock()
	if err == nil {
		d.deadline = deadline
	}
	d.lost = errors.Is(err, ErrLost)
	d.release()
	return deadline, err
}

// Deadline returns when the delivery is lost if not settled; zero: never.
func (d *Delivery[T]) Deadline() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.deadline
}

// acquire waits for its turn to call the settler, or says why there is none.
// The wait is on a channel and not on mu: a settler may take its time, and a
// goroutine that waits for a mutex stops the clock of a synctest bubble.
func (d *Delivery[T]) acquire(ctx context.Context) error {
	d.mu.Lock()
	for d.busy {
		if d.idle == nil {
			d.idle = make(chan struct{})
		}
		idle := d.idle
		d.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	switch {
	case d.settled:
		return ErrSettled
	case d.lost:
		return ErrLost
	case !d.deadline.IsZero() && !time.Now().Before(d.deadline):
		d.lost = true
		return ErrLost
	}
	d.busy = true
	return nil
}

// release ends the turn that acquire gave, and unlocks mu.
func (d *Delivery[T]) release() {
	d.busy = false
	if d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
	d.mu.Unlock()
}
