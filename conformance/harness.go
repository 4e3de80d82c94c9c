package conformance

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// A Broker is what the suite tests: a broker that can be closed, as its owner
// would.
type Broker interface {
	messaging.Broker
	io.Closer
}

// A Harness tells the suite how to reach the broker under test. Its functions
// may be called from several goroutines, each with a T of its own, and more
// than once with the same T; they fail it when they cannot do their work.
type Harness struct {
	// Open returns an empty broker, with default settings but for Duplicates.
	// What has to be torn down is left to t.Cleanup; the broker may be closed
	// by then. With Bubble it is called inside the bubble. Required.
	Open func(t *testing.T) Broker

	// OpenFull returns a broker at its bound: the next Publish is ErrFull.
	// Nil: it cannot be done.
	OpenFull func(t *testing.T) Broker

	// OpenDiscarding returns an empty broker that keeps so many events at
	// most, and discards the oldest beyond that. Nil: it cannot be done.
	OpenDiscarding func(t *testing.T, events int) Broker

	// OpenDeadFull returns an empty broker that cannot store dead letters
	// until room is called. Nil: it cannot be done.
	OpenDeadFull func(t *testing.T) (b Broker, room func())

	// Restart closes or kills the broker, with the client's process as far as
	// that goes, and opens it again. Nil: the broker is not durable.
	Restart func(t *testing.T, b Broker) Broker

	// Inject puts a foreign message into the broker's log. header and body
	// are in the form of event.NATS; a provider with another binding
	// translates. Nil: it cannot be done.
	Inject func(t *testing.T, b Broker, header map[string][]string, body []byte)

	// Capabilities are those that the provider declares.
	Capabilities Capability

	// Bubble runs each check in a bubble of testing/synctest. The broker must
	// do no I/O then.
	Bubble bool

	// AckWait is the shortest deadline worth waiting for. Default one second,
	// which is free in a bubble.
	AckWait time.Duration

	// Duplicates is the deduplication window of the brokers that Open
	// returns. Default messaging.DefaultDuplicates.
	Duplicates time.Duration

	// Slack is how much later than AckWait a lost delivery may be delivered
	// again, as the provider states it [ACK-2].
	Slack time.Duration

	// Deviations are requirements that the provider is known to break, by
	// their IDs, and why. At least one of the requirement's checks must still
	// fail.
	Deviations map[string]string

	// Report is the name of two files, without extension, to write a report
	// to: NAME.json and NAME.md. Default: none.
	Report string

	fake func() Broker // for tests of the suite: in place of newFake
}

func (h Harness) openFake() Broker {
	if h.fake != nil {
		return h.fake()
	}
	return newFake()
}

// withDefaults returns h with its zero fields filled in.
func (h Harness) withDefaults() Harness {
	if h.AckWait == 0 {
		h.AckWait = time.Second
	}
	if h.Duplicates == 0 {
		h.Duplicates = messaging.DefaultDuplicates
	}
	return h
}

// validate returns what is wrong with h.
func (h Harness) validate() error {
	switch {
	case h.Open == nil:
		return errors.New("the field Open is nil")
	case h.AckWait < 0, h.Duplicates < 0, h.Slack < 0:
		return errors.New("the fields AckWait, Duplicates and Slack must not be negative")
	case h.Capabilities.Has(Durable) != (h.Restart != nil):
		return errors.New("the capability Durable and the field Restart go together: have one without the other")
	}
	for id := range h.Deviations {
		if !slices.ContainsFunc(requirements, func(r Requirement) bool { return r.ID == id }) {
			return fmt.Errorf("the field Deviations names %q, which the contract does not have", id)
		}
	}
	return nil
}
