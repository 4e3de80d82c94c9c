package messaging

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/catchment-events/catchment/reactor"
)

// A DeadLetter says why a subscription gave up on an event. It stands beside
// the event, which is unchanged [DLQ-2].
type DeadLetter struct {
	Subscription string    // the one that gave up
	Reason       string    // of the last failure; MaxReason bytes at most
	Attempts     int       // deliveries that failed
	Sequence     uint64    // of the event in the log; 0: unknown
	Stored       time.Time // when the log stored the event
	Died         time.Time
}

// MaxReason is the length of a dead letter's reason, in bytes, at most [DLQ-2].
const MaxReason = 1 << 10

// The annotations that carry a dead letter.
const (
	annotationSubscription = "dead-subscription"
	annotationReason       = "dead-reason"
	annotationAttempts     = "dead-attempts"
	annotationSequence     = "dead-sequence"
	annotationStored       = "dead-stored"
	annotationDied         = "dead-died"
)

// Annotations returns d as annotations that DeadLetterFrom reads, with the
// reason cut to MaxReason, made valid UTF-8, and rid of control characters:
// for providers.
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

// DeadLetterFrom reads the annotations of a delivery from a subscription with
// DeadLettersOf, and reports whether there are any.
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
