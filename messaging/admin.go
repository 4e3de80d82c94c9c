package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Admin looks after the subscriptions of a broker: for operators' tools.
// [AdminOf] returns a broker's. A subscription is named by Name and
// DeadLettersOf [SUB-7]; where a Subscription stands for one that exists, its
// other fields do not count. Errors wrap ErrNotFound where there is none, and
// are otherwise as for Subscribe. It is safe for concurrent use.
type Admin interface {
	// Subscriptions returns the state of each subscription, by name [ADM-1].
	Subscriptions(ctx context.Context) ([]Status, error)

	// Seek moves a subscription to a start, while its members work or not:
	// deliveries from before settle nothing afterwards, and attempts begin at
	// 1 again [ADM-2].
	Seek(ctx context.Context, sub Subscription, to Start) error

	// Update gives a subscription other settings and keeps its position; its
	// members go on under the new ones. Start does not count. A type added
	// later starts from the current position [ADM-4].
	Update(ctx context.Context, sub Subscription) error

	// Delete removes a subscription and returns how many events it discards
	// that were not settled. The Receives of its members return ErrNotFound,
	// and deliveries from before settle nothing. Its dead letters stay until
	// DeleteDeadLetters [ADM-3].
	Delete(ctx context.Context, sub Subscription) (discarded uint64, err error)

	// DeleteDeadLetters removes a subscription's dead letters, and what did
	// not decode, and returns how many there were of both [ADM-3].
	DeleteDeadLetters(ctx context.Context, name string) (discarded uint64, err error)

	// Undecodable returns what a subscription met that was no event, as it
	// was stored, the oldest first [RCV-5].
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

// AdminOf returns the Admin of a broker: s itself, or what it wraps, as far as
// Unwrap() Broker leads. Without any the error wraps [errors.ErrUnsupported].
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
