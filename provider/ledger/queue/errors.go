package queue

import (
	"errors"
	"fmt"
)

var (
	// ErrFull says that a call does not fit into the bounds of the ledger.
	// Nothing of the call was stored.
	ErrFull = errors.New("queue: full")

	// ErrUnknown says that the database failed during a commit: whether it is
	// stored will turn out when the database is opened anew.
	ErrUnknown = errors.New("queue: unknown whether it is stored")

	// ErrClosed says that a producer, a consumer or a queue was closed.
	ErrClosed = errors.New("queue: closed")
)

// A DamageError says that a part of a ledger is damaged, and will not be readable
// later either. What stands before and after it is: a reader that goes on does so
// at To.
type DamageError struct {
	// From is the first entry that cannot be read and To the first after it
	// that perhaps can.
	From, To uint64

	// Err says what is wrong.
	Err error
}

// Error names the entries.
func (e *DamageError) Error() string {
	return fmt.Sprintf("queue: entries %d to %d cannot be read: %v", e.From, e.To-1, e.Err)
}

// Unwrap returns Err.
func (e *DamageError) Unwrap() error { return e.Err }
