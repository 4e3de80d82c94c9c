package messaging

import (
	"errors"
	"fmt"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// Errors are matched with [errors.Is]. What a provider does not offer is
// refused with an error that wraps [errors.ErrUnsupported] [CAP-1].
var (
	// ErrInvalid refuses an event or a setting that breaks the rules; the
	// text names the attribute or the field, and what is allowed.
	ErrInvalid = errors.New("messaging: invalid")

	// ErrTooLarge refuses an event above the broker's limit [EVT-2].
	ErrTooLarge = errors.New("messaging: event too large")

	// ErrConflict refuses a Subscribe whose settings differ from those of the
	// existing subscription [SUB-4].
	ErrConflict = errors.New("messaging: subscription exists with other settings")

	// ErrFull refuses a Publish to a log that is at its bound [RET-2].
	ErrFull = errors.New("messaging: log is full")

	// ErrNotFound says that there is no such subscription, or no more.
	ErrNotFound = errors.New("messaging: no such subscription")

	// ErrUnknown marks the error of an event that may or may not be stored.
	// Publishing it again within the deduplication window is safe [PUB-6].
	ErrUnknown = errors.New("messaging: outcome unknown, the event may be stored")

	// ErrLost is [reactor.ErrLost].
	ErrLost = reactor.ErrLost

	// ErrClosed is [reactor.ErrClosed].
	ErrClosed = reactor.ErrClosed
)

// A DecodeError tells a Report of a message in the log that is no event; it
// was terminated and is delivered to nobody [RCV-5].
type DecodeError struct {
	Subscription string              // the name of the one that met it
	Sequence     uint64              // its position in the log; 0: unknown
	Header       map[string][]string // as it was stored
	Body         []byte              // as it was stored
	Err          error               // what is wrong with it
}

// Error quotes the cause and nothing of the message.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("messaging: subscription %q: message %d does not decode: %v", e.Subscription, e.Sequence, e.Err)
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// A DiscardedError tells a Report that a subscription's events were discarded
// by the bounds of the log before it received them [RET-3].
type DiscardedError struct {
	Subscription string
	Count        uint64 // 0: unknown
}

// Error says how many, where that is known.
func (e *DiscardedError) Error() string {
	if e.Count == 0 {
		return fmt.Sprintf("messaging: subscription %q: events were discarded before it received them", e.Subscription)
	}
	return fmt.Sprintf("messaging: subscription %q: %d events were discarded before it received them", e.Subscription, e.Count)
}

const (
	// MaxEventSize is the size above which a broker that says nothing else
	// refuses an event, in bytes; ReservedSize of them are not the event's
	// but kept for annotations [EVT-2].
	MaxEventSize = 1 << 20
	ReservedSize = 8 << 10
)

// CheckEvents is what Publish refuses a call for: for providers. It returns
// nil, or an error that wraps ErrInvalid or ErrTooLarge, and names the event
// by its index if there are several. limit is in bytes, as for MaxEventSize.
func CheckEvents(limit int, events ...event.Event) error {
	for i, e := range events {
		err := event.Check(e)
		switch size := 0; {
		case err != nil:
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		default:
			if size = event.Size(e); size > limit-ReservedSize {
				err = fmt.Errorf("%w: %d bytes encoded, of %d at most", ErrTooLarge, size, limit-ReservedSize)
			}
		}
		if err != nil && len(events) > 1 {
			return fmt.Errorf("event %d of %d: %w", i+1, len(events), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
