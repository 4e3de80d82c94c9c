// Package messaging is the contract between services and message brokers: what
// a service depends on, and what a provider implements.
//
// A [Broker] stores CloudEvents in one log. A service publishes to it, and
// subscribes under a name of its own; the subscription is a durable position in
// the log that outlives the process:
//
//	err := messaging.React(ctx, broker, messaging.Subscription{
//		Name:  "billing",
//		Types: []string{"order.placed"},
//	}, handleOrder, nil)
//
// There are no topics: subscriptions select events by type. One that is open in
// several places has several members, which split the work. It outlives them
// [SUB-9], and sees every event that it selects [SUB-6] until that is acked or
// becomes a dead letter: at least once, so handlers must bear repetition.
//
// Tests use provider/memory, in a bubble of [testing/synctest]. IDs in brackets
// name the requirements of the contract, conformance/CONTRACT.md.
package messaging

import (
	"context"
	"log/slog"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// Defaults and bounds.
const (
	DefaultAckWait     = 30 * time.Second // of a Subscription
	DefaultMaxInFlight = 1024             // of a Subscription
	DefaultDuplicates  = 2 * time.Minute  // of a broker's deduplication window [PUB-3]
	MaxTypes           = 64               // of a Subscription
	MaxEventSize       = 1 << 20          // bytes, unless a broker says otherwise [EVT-2]
	ReservedSize       = 8 << 10          // bytes of that, for annotations [EVT-2]
	MaxReason          = 1 << 10          // bytes of a dead letter's reason [DLQ-2]
)

// A Publisher stores events.
type Publisher interface {
	// Publish stores the events in the log, in order [PUB-2], and returns nil
	// when each is, or was: source and id that were first stored within the
	// deduplication window are not stored again [PUB-1, PUB-3, PUB-4], so what
	// is unclear becomes clear by publishing it again [PUB-6]. What is stored
	// stays, as far as the log's bounds go [PUB-8, RET-1].
	//
	// ErrClosed [PUB-9], the context's error [PUB-6], ErrInvalid and ErrTooLarge
	// store nothing [EVT-1, EVT-2, PUB-5]. After ErrFull [RET-2] or another,
	// events may be missing, or stored if it wraps ErrUnknown; for several it
	// is a [*reactor.BatchError]. Publish waits for a broker that is away as
	// long as ctx does [PUB-6], and for no subscription [PUB-7]. It keeps
	// nothing of the events [EVT-4], and is safe for concurrent use [PUB-10].
	Publish(ctx context.Context, events ...event.Event) error
}

// A Subscriber opens members of subscriptions.
type Subscriber interface {
	// Subscribe opens a member of the subscription, which exists from then on:
	// an event published later is delivered, whenever the first Receive comes
	// [SUB-1]. An existing one resumes at its position and ignores Start
	// [SUB-3]; if its other settings differ the error wraps ErrConflict and
	// names the field and both values [SUB-4]. Others: ErrClosed, the
	// context's, ErrInvalid [SUB-7, SUB-8], and [errors.ErrUnsupported] for
	// what the provider does not offer [CAP-1]. ctx bounds the call, not the
	// member. report is told of trouble that no Receive returns, such as a
	// message that does not decode [RCV-5].
	Subscribe(ctx context.Context, sub Subscription, report Report) (Source, error)
}

// A Broker is one log with its subscriptions. Whoever built it closes it, through
// its concrete type, and its sources with it [CLS-1, CLS-3].
type Broker interface {
	Publisher
	Subscriber
}

// A Source is one member of a subscription. Its Receive returns ErrNotFound when
// that was deleted, and rides out connection trouble [RCV-1]. Its Close settles,
// loses and deletes nothing [CLS-2]. See [reactor.Source].
type Source = reactor.Source[event.Event]

// A Delivery is one hand-over of one event to one member, whose own the event is
// [EVT-5]. It has Value and Info; Ack, Retry, Reject or Release settle it, once;
// Extend keeps it for another AckWait. See [reactor.Delivery].
type Delivery = reactor.Delivery[event.Event]

// A Handler is a func(ctx context.Context, e event.Event) error: nil acks, an
// error retries, [reactor.Reject] and [reactor.RetryAfter] say otherwise.
type Handler = reactor.Handler[event.Event]

// Options are the settings of a reactor: Concurrency, Key, Backoff, DrainTimeout,
// IdleTimeout, Observer. See [reactor.Options].
type Options = reactor.Options[event.Event]

// An Observer has functions that are told what happens: Received, Settled, State,
// Error, Published. See [reactor.Observer].
type Observer = reactor.Observer[event.Event]

// A Report is told of a subscription's trouble that no call returns, perhaps
// by several goroutines, and must not block. nil logs to [slog.Default].
type Report func(ctx context.Context, err error)

// Do calls the report, or logs: for providers.
func (r Report) Do(ctx context.Context, err error) {
	if r != nil {
		r(ctx, err)
		return
	}
	slog.Default().WarnContext(ctx, "subscription trouble", "error", err)
}

// React is Subscribe and then [reactor.Run]: h is called with what arrives,
// until ctx ends. Reports go to Observer.Error, or are logged.
func React(ctx context.Context, s Subscriber, sub Subscription, h Handler, opts *Options) error {
	src, err := subscribe(ctx, s, sub, opts)
	if err != nil {
		return err
	}
	return reactor.Run(ctx, src, h, opts)
}

// NewReactor returns a reactor that does what React does, named as the
// subscription, for a [reactor.Group]. For batches see [reactor.NewBatch].
func NewReactor(s Subscriber, sub Subscription, h Handler, opts *Options) *reactor.Reactor {
	return reactor.New(sub.Name, func(ctx context.Context) (Source, error) {
		return subscribe(ctx, s, sub, opts)
	}, h, opts)
}

func subscribe(ctx context.Context, s Subscriber, sub Subscription, opts *Options) (Source, error) {
	var report Report
	if opts != nil {
		report = reportTo(opts.Observer, nil)
	}
	return s.Subscribe(ctx, sub, report)
}
