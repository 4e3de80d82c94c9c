package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Admin looks after subscriptions: for operators' tools. A Subscription
// stands for the one with its Name and DeadLettersOf [SUB-7]; only Update looks
// at the rest. Errors are ErrNotFound, and those of Subscribe. It is safe for
// concurrent use.
type Admin interface {
	// Subscriptions returns the state of each subscription, by name [ADM-1].
	Subscriptions(ctx context.Context) ([]Status, error)
	// Seek moves a subscription, while its members work or not: deliveries
	// from before settle nothing, and attempts begin at 1 again [ADM-2].
	Seek(ctx context.Context, sub Subscription, to Start) error
	// Update gives a subscription other settings, but no other Start [ADM-4].
	Update(ctx context.Context, sub Subscription) error
	// Delete removes a subscription and what it has not settled, but not its
	// dead letters: Receives return ErrNotFound, settles ErrLost [ADM-3].
	Delete(ctx context.Context, sub Subscription) (discarded uint64, err error)
	// DeleteDeadLetters removes those, and what did not decode [ADM-3].
	DeleteDeadLetters(ctx context.Context, name string) (discarded uint64, err error)
	// Undecodable returns what a subscription could not decode [RCV-5].
	Undecodable(ctx context.Context, name string) ([]*DecodeError, error)
}

// A Status is the state of a subscription at some moment [ADM-1].
type Status struct {
	Subscription
	Pending     uint64    // events that wait for their first delivery
	InFlight    int       // events with a member, or waiting for a retry delay
	Redelivered int       // of those in flight, not on their first delivery
	DeadLetters uint64    // events that the subscription gave up on
	Oldest      time.Time // when the oldest unsettled event was stored; zero: none
	Members     int       // open sources; -1: unknown
}

// AdminOf returns the Admin of a broker: s, or what Unwrap() Broker leads to; or
// an error that wraps [errors.ErrUnsupported].
func AdminOf(s Subscriber) (Admin, error) {
	for next := s; next != nil; {
		if a, ok := next.(Admin); ok {
			return a, nil
		}
		w, ok := next.(interface{ Unwrap() Broker })
		if !ok {
			break
		}
		next = w.Unwrap()
	}
	return nil, fmt.Errorf("messaging: %T has no Admin: %w", s, errors.ErrUnsupported)
}
