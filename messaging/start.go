package messaging

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Start says where in the log a new subscription begins [SUB-2]; the zero value
// is StartFirst. It is comparable, and marshals to text and back.
type Start struct {
	kind startKind
	time int64 // UnixNano
	seq  uint64
}

type startKind uint8

const (
	startFirst startKind = iota
	startNew
	startTime
	startSequence
)

// StartFirst begins at the first retained event.
func StartFirst() Start { return Start{} }

// StartNew begins after the last event whose Publish has returned.
func StartNew() Start { return Start{kind: startNew} }

// StartAt begins at the first event since t, a time past; a capability.
func StartAt(t time.Time) Start {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return Start{kind: startTime, time: math.MinInt64}
	case t.After(time.Unix(0, math.MaxInt64)):
		return Start{kind: startTime, time: math.MaxInt64}
	}
	return Start{kind: startTime, time: t.UnixNano()}
}

// StartFrom begins at that sequence, or the next that there is; a capability.
func StartFrom(sequence uint64) Start { return Start{kind: startSequence, seq: sequence} }

func (s Start) New() bool { return s.kind == startNew }

// Time returns the time of a StartAt.
func (s Start) Time() (time.Time, bool) {
	return time.Unix(0, s.time).UTC(), s.kind == startTime
}

// Sequence returns the sequence of a StartFrom.
func (s Start) Sequence() (uint64, bool) { return s.seq, s.kind == startSequence }

// String returns "first", "new", "at 2006-01-02T15:04:05.999Z" or "from 42".
func (s Start) String() string {
	switch s.kind {
	case startNew:
		return "new"
	case startTime:
		return "at " + time.Unix(0, s.time).UTC().Format(time.RFC3339Nano)
	case startSequence:
		return "from " + strconv.FormatUint(s.seq, 10)
	}
	return "first"
}

func (s Start) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *Start) UnmarshalText(text []byte) error {
	verb, arg, more := strings.Cut(string(text), " ")
	var err error
	switch {
	case verb == "first" && !more:
		*s = StartFirst()
	case verb == "new" && !more:
		*s = StartNew()
	case verb == "at":
		var t time.Time
		if t, err = time.Parse(time.RFC3339Nano, arg); err == nil {
			*s = StartAt(t)
		}
	case verb == "from":
		var n uint64
		if n, err = strconv.ParseUint(arg, 10, 64); err == nil {
			*s = StartFrom(n)
		}
	default:
		err = fmt.Errorf("must be first, new, at TIME or from SEQUENCE")
	}
	if err != nil {
		return fmt.Errorf("messaging: start %q: %w", text, err)
	}
	return nil
}
