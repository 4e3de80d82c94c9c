package messaging

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/catchment-events/catchment/reactor"
)

// A DeadLetter stands beside an event that a subscription gave up on [DLQ-2].
type DeadLetter struct {
	Subscription string
	Reason       string    // of the last failure; MaxReason bytes at most
	Attempts     int       // deliveries that failed
	Sequence     uint64    // of the event in the log; 0: unknown
	Stored, Died time.Time // when the log stored it, and when it was given up
}

// The annotations that carry a dead letter.
const (
	annotationSubscription = "dead-subscription"
	annotationReason       = "dead-reason"
	annotationAttempts     = "dead-attempts"
	annotationSequence     = "dead-sequence"
	annotationStored       = "dead-stored"
	annotationDied         = "dead-died"
)

// Annotations returns d for DeadLetterFrom to read, its reason made to fit.
func (d DeadLetter) Annotations() map[string]string {
	return map[string]string{
		annotationSubscription: d.Subscription,
		annotationReason:       boundReason(d.Reason),
		annotationAttempts:     strconv.Itoa(d.Attempts),
		annotationSequence:     strconv.FormatUint(d.Sequence, 10),
		annotationStored:       d.Stored.UTC().Format(time.RFC3339Nano),
		annotationDied:         d.Died.UTC().Format(time.RFC3339Nano),
	}
}

// DeadLetterFrom reads the annotations of a dead letter; false: it is none.
func DeadLetterFrom(info reactor.Info) (DeadLetter, bool) {
	a := info.Annotations
	name, ok := a[annotationSubscription]
	if !ok {
		return DeadLetter{}, false
	}
	d := DeadLetter{Subscription: name, Reason: a[annotationReason]}
	d.Attempts, _ = strconv.Atoi(a[annotationAttempts])
	d.Sequence, _ = strconv.ParseUint(a[annotationSequence], 10, 64)
	d.Stored, _ = time.Parse(time.RFC3339Nano, a[annotationStored])
	d.Died, _ = time.Parse(time.RFC3339Nano, a[annotationDied])
	return d, true
}

// boundReason makes s fit for an annotation: control characters become
// spaces, what is not UTF-8 the replacement character, and the end is cut off
// at a whole character.
func boundReason(s string) string {
	s = s[:min(len(s), 4*MaxReason)] // bounds the work; replacements only grow it
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > MaxReason {
		s = s[:MaxReason]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}
