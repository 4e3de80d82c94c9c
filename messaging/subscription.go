package messaging

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/catchment-events/catchment/event"
)

// A Subscription says what a member asks for. It is a plain value. Members of
// one subscription give the same settings, but for Start [SUB-3, SUB-4].
type Subscription struct {
	Name string // 1 to 64 of a-z, 0-9, _ and -, the first a letter or digit [SUB-7]

	// Types are patterns that select events by type, at most 64; none selects
	// all. A pattern is tokens with dots between them, where * stands for any
	// one token, and > at the end for one or more [SUB-8].
	Types []string

	// AckWait is how long a member may keep a delivery from Receive, before it
	// is delivered again [ACK-2]. Default 30 s.
	AckWait time.Duration

	// MaxInFlight is how many events may be with members, or wait for a retry
	// [RCV-4]. 1 is strict order, retries included [RCV-3]. Default 1024.
	MaxInFlight int

	Start         Start         // of a new subscription; default: the first event
	MaxAttempts   int           // the failed delivery that kills an event [DLQ-1]; 0: none
	Expires       time.Duration // deleted after so long without a member [SUB-10]; 0: never
	DeadLettersOf string        // reads that subscription's dead letters [DLQ-4]; "": the log
}

// Normalize returns s with its defaults and sorted Types, or an error that
// wraps ErrInvalid and names the field: for providers.
func (s Subscription) Normalize() (Subscription, error) {
	invalid := func(field string, value any, want string) (Subscription, error) {
		return Subscription{}, fmt.Errorf("%w: subscription %q: %s is %v: must be %s", ErrInvalid, s.Name, field, value, want)
	}
	if !validName(s.Name) {
		return Subscription{}, fmt.Errorf("%w: subscription Name %q: must be %s", ErrInvalid, s.Name, nameRule)
	}
	switch {
	case s.DeadLettersOf != "" && !validName(s.DeadLettersOf):
		return invalid("DeadLettersOf", fmt.Sprintf("%q", s.DeadLettersOf), nameRule)
	case len(s.Types) > MaxTypes:
		return invalid("len(Types)", len(s.Types), fmt.Sprintf("at most %d", MaxTypes))
	case s.AckWait < 0:
		return invalid("AckWait", s.AckWait, "positive, or 0 for the default")
	case s.MaxInFlight < 0:
		return invalid("MaxInFlight", s.MaxInFlight, "positive, or 0 for the default")
	case s.MaxAttempts < 0:
		return invalid("MaxAttempts", s.MaxAttempts, "positive, or 0 for no cap")
	case s.Expires < 0:
		return invalid("Expires", s.Expires, "positive, or 0 for never")
	}
	if t, ok := s.Start.Time(); ok && t.After(time.Now()) {
		return invalid("Start", s.Start, "a time that is not in the future")
	}
	if _, err := event.ParsePattern(s.Types...); err != nil {
		return Subscription{}, fmt.Errorf("%w: subscription %q: Types: %w", ErrInvalid, s.Name, err)
	}
	if s.AckWait == 0 {
		s.AckWait = DefaultAckWait
	}
	if s.MaxInFlight == 0 {
		s.MaxInFlight = DefaultMaxInFlight
	}
	s.Types = slices.Compact(slices.Sorted(slices.Values(s.Types)))
	return s, nil
}

// Conflict returns nil, or the ErrConflict of a member that asks for s, where
// the settings are have. Both are normalized: for providers [SUB-4].
func (s Subscription) Conflict(have Subscription) error {
	conflict := func(field string, want, have any) error {
		return fmt.Errorf("%w: subscription %q: %s is %v, asked for %v", ErrConflict, s.Name, field, have, want)
	}
	switch {
	case !slices.Equal(s.Types, have.Types):
		return conflict("Types", s.Types, have.Types)
	case s.AckWait != have.AckWait:
		return conflict("AckWait", s.AckWait, have.AckWait)
	case s.MaxInFlight != have.MaxInFlight:
		return conflict("MaxInFlight", s.MaxInFlight, have.MaxInFlight)
	case s.MaxAttempts != have.MaxAttempts:
		return conflict("MaxAttempts", s.MaxAttempts, have.MaxAttempts)
	case s.Expires != have.Expires:
		return conflict("Expires", s.Expires, have.Expires)
	}
	return nil
}

const nameRule = "1 to 64 characters of a-z, 0-9, _ and -, the first a letter or digit"

func validName(name string) bool {
	if name == "" || len(name) > 64 || strings.ContainsAny(name[:1], "_-") {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
