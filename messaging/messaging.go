// Package messaging is the contract between services and message brokers: what
// a service depends on, and what a provider implements.
//
// # Usage
//
// A [Broker] stores CloudEvents in one log. A service publishes to it, and
// subscribes under a name of its own; the subscription is a durable position
// in the log that outlives the process:
//
//	err := messaging.React(ctx, broker, messaging.Subscription{
//		Name:  "billing",
//		Types: []string{"order.placed"},
//	}, handleOrder, nil)
//
// There are no topics: an event's type is what subscriptions select on. A
// subscription that is open in several places has several members, which share
// its position and split the work. It outlives them [SUB-9], and is independent
// of other subscriptions: each sees every event that it selects [SUB-6].
//
// # Delivery
//
// An event that was published is delivered to each subscription that selects
// it, until it is acked there or becomes a dead letter: at least once, so
// handlers must bear repetition.
//
// # Testing
//
// Give a service the broker of provider/memory, in a [testing/synctest] bubble
// for virtual time. Providers are held to the contract by package conformance.
//
// IDs in brackets, such as [PUB-1], name the requirements of the contract,
// which is kept in conformance/CONTRACT.md.
package messaging

import (
	"context"
	"log/slog"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// A Publisher stores events.
type Publisher interface {
	// Publish stores the events in a broker's log, in their order [PUB-2].
	// When it returns nil, every one is stored, or was before: an event whose
	// source and id were first stored within the deduplication window is not
	// stored again [PUB-1, PUB-3], and one after it is [PUB-4]. Publishing the
	// same events again within the window is how an unclear outcome is made
	// clear [PUB-6]. What is stored stays until the owner's bounds of the log
	// say otherwise [PUB-8, RET-1].
	//
	// The refusals, in this order, store nothing of the call: ErrClosed, also
	// with no events [PUB-9]; the context's error if it is done already
	// [PUB-6]; ErrInvalid [EVT-1, EVT-2] and ErrTooLarge [EVT-2], for the
	// call as a whole [PUB-5]. ErrFull says that the log is at its bound
	// [RET-2]. Any other error means that events may be missing: one that
	// wraps ErrUnknown, that the event may be stored. When several events
	// were passed it is a [*reactor.BatchError], with an error for each.
	//
	// Publish waits as long as ctx does for a broker that is away [PUB-6],
	// never for a subscription [PUB-7]. It keeps nothing of the events
	// [EVT-4], and is safe for concurrent use [PUB-10].
	Publish(ctx context.Context, events ...event.Event) error
}

// A Subscriber opens members of subscriptions.
type Subscriber interface {
	// Subscribe opens a member of the subscription, which it creates if there
	// is none by that name. The subscription exists when Subscribe returns: an
	// event published later is delivered, whenever the first Receive comes
	// [SUB-1]. An existing one resumes at its position and ignores Start
	// [SUB-3]; if its other settings differ the error wraps ErrConflict and
	// names the field and both values [SUB-4].
	//
	// Other refusals: ErrClosed, the context's error, ErrInvalid for settings
	// out of range [SUB-7, SUB-8], and [errors.ErrUnsupported] for what the
	// provider does not offer [CAP-1]. ctx bounds the call, not the member,
	// which lives until its Close.
	//
	// report is told of trouble that no Receive returns, such as a message
	// that does not decode [RCV-5]; nil logs it.
	Subscribe(ctx context.Context, sub Subscription, report Report) (Source, error)
}

// A Broker is one log with its subscriptions. Whoever built a broker closes
// it, through its concrete type: ErrClosed is then what its methods return,
// its sources are closed with it [CLS-1], and nothing that they started is left
// running [CLS-3].
type Broker interface {
	Publisher
	Subscriber
}

// A Source is one member of a subscription. Besides what [reactor.Source]
// says: Receive returns ErrNotFound once the subscription was deleted, and
// rides out connection trouble by itself [RCV-1]; Close neither settles nor
// loses anything, and never deletes the subscription [CLS-2].
type Source = reactor.Source[event.Event]

// A Delivery is one hand-over of one event to one member, whose own the event
// is: a change of it is seen by nobody else [EVT-5]. Its Value and Info are
// fields; Ack, Retry, Reject and Release settle it, once; Extend keeps it
// for another AckWait; Deadline says until when. See [reactor.Delivery].
type Delivery = reactor.Delivery[event.Event]

// A Handler handles one event: func(ctx context.Context, e event.Event) error.
// nil acks, an error retries, [reactor.Reject] and [reactor.RetryAfter] say
// otherwise. See [reactor.Handler].
type Handler = reactor.Handler[event.Event]

// Options are the settings of a reactor of events: Concurrency, Backoff,
// DrainTimeout, Observer. See [reactor.Options].
type Options = reactor.Options[event.Event]

// An Observer is told what a reactor of events does: Received, Settled. See
// [reactor.Observer].
type Observer = reactor.Observer[event.Event]

// DefaultDuplicates is the deduplication window of brokers that are not told
// another [PUB-3].
const DefaultDuplicates = 2 * time.Minute

// A Report is told of trouble with a subscription that no call returns. It may
// be called from several goroutines, and must not block. The zero Report logs
// to [slog.Default].
type Report func(ctx context.Context, err error)

// Do calls the report, or logs err if it is nil: for providers.
func (r Report) Do(ctx context.Context, err error) {
	if r != nil {
		r(ctx, err)
		return
	}
	slog.Default().WarnContext(ctx, "subscription trouble", "error", err)
}

// React subscribes and runs h on what arrives, until ctx ends: Subscribe, then
// [reactor.Run]. It returns nil after a drain, and otherwise the error of
// either. Trouble is logged; Subscribe and Run called one after the other
// take a Report.
func React(ctx context.Context, s Subscriber, sub Subscription, h Handler, opts *Options) error {
	src, err := s.Subscribe(ctx, sub, nil)
	if err != nil {
		return err
	}
	return reactor.Run(ctx, src, h, opts)
}
