package messaging

import (
	"errors"
	"fmt"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// Errors are matched with [errors.Is]. ErrInvalid names the attribute or field
// and what is allowed, ErrConflict the field and both values [SUB-4]. After
// ErrUnknown an event may be published again within the deduplication window
// [PUB-6]. What a provider has not is [errors.ErrUnsupported] [CAP-1].
var (
	ErrInvalid  = errors.New("messaging: invalid")
	ErrTooLarge = errors.New("messaging: event too large")
	ErrConflict = errors.New("messaging: subscription exists with other settings")
	ErrFull     = errors.New("messaging: log is full")
	ErrNotFound = errors.New("messaging: no such subscription")
	ErrUnknown  = errors.New("messaging: outcome unknown, the event may be stored")
	ErrLost     = reactor.ErrLost
	ErrClosed   = reactor.ErrClosed
)

// A DecodeError tells a Report of a message that is no event [RCV-5].
type DecodeError struct {
	Subscription string
	Sequence     uint64              // its position in the log; 0: unknown
	Header       map[string][]string // as it was stored, like Body
	Body         []byte
	Err          error // what is wrong with it
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("messaging: subscription %q: message %d does not decode: %v", e.Subscription, e.Sequence, e.Err)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// A DiscardedError tells a Report of events that were lost to bounds [RET-3].
type DiscardedError struct {
	Subscription string
	Count        uint64 // 0: unknown
}

func (e *DiscardedError) Error() string {
	if e.Count == 0 {
		return fmt.Sprintf("messaging: subscription %q: events were discarded before it received them", e.Subscription)
	}
	return fmt.Sprintf("messaging: subscription %q: %d events were discarded before it received them", e.Subscription, e.Count)
}

// CheckEvents returns what Publish refuses a call for, with a limit as MaxEventSize
// is one: for providers.
func CheckEvents(limit int, events ...event.Event) error {
	for i, e := range events {
		err := event.Check(e)
		switch most := limit - ReservedSize; {
		case err != nil:
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		case len(e.DataEncoded) <= most-event.MaxAttributeBytes: // Check bounds the rest
		default:
			if size := event.Size(e); size > most {
				err = fmt.Errorf("%w: %d bytes encoded, of %d at most", ErrTooLarge, size, most)
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
