// Package provider is a messaging provider that is as small as one can be that
// keeps the contract: a log in memory behind one mutex, without a goroutine or
// a callback of its own. It is here to be read: the README beside it tells how
// the suite of package conformance led from a first try, package naive, to
// this. Tests and programs use provider/memory.
package provider

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// A Broker is a log in memory, which is never cut, and its subscriptions, in
// which each Receive looks at every event that is not settled. It has the
// capabilities OrderedPublish, ExactAttempts, ConfirmedAck and Fenced, and no
// [messaging.Admin]. It is safe for concurrent use. Make one with New.
type Broker struct {
	mu sync.Mutex
	// Below: under mu, and so is everything that can be reached from here.
	log    []*entry
	seen   map[id]time.Time // when source and id were stored [PUB-3]
	subs   map[id]*subscription
	closed bool
}

// An id is an event's source and id, or a subscription's DeadLettersOf and Name.
type id [2]string

// An entry is an event in the log, or in the dead letters of a subscription.
type entry struct {
	event       event.Event
	sequence    uint64
	stored      time.Time
	annotations map[string]string // of a dead letter
	removed     bool              // a dead letter that was acked
}

// New returns an empty broker.
func New() *Broker {
	return &Broker{seen: make(map[id]time.Time), subs: make(map[id]*subscription)}
}

// Publish stores the events, or none of them.
func (b *Broker) Publish(ctx context.Context, events ...event.Event) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := cmp.Or(refuse(ctx, b.closed), messaging.CheckEvents(messaging.MaxEventSize, events...)); err != nil {
		return err
	}
	events = slices.Clone(events)
	for i := range events {
		if events[i], err = canonical(events[i]); err != nil {
			return fmt.Errorf("publish event %d: %w", i, err)
		}
	}
	now := time.Now()
	for _, e := range events {
		key := id{e.Source(), e.ID()}
		if first, ok := b.seen[key]; ok && now.Sub(first) < messaging.DefaultDuplicates {
			continue
		}
		b.seen[key] = now
		n := &entry{event: e, sequence: uint64(len(b.log) + 1), stored: now}
		b.log = append(b.log, n)
		b.feed(n, "")
	}
	return nil
}

// feed adds an entry to the subscriptions that read the log, or the dead
// letters of one.
func (b *Broker) feed(n *entry, deadLettersOf string) {
	for _, s := range b.subs {
		if s.DeadLettersOf == deadLettersOf {
			s.add(n)
		}
	}
}

// Subscribe opens a member of a subscription. Expires, StartAt and StartFrom
// are refused with [errors.ErrUnsupported]. report is never called: whatever
// goes wrong here, a call returns it.
func (b *Broker) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sub, err := sub.Normalize()
	if err := cmp.Or(refuse(ctx, b.closed), err); err != nil {
		return nil, err
	}
	s, ok := b.subs[id{sub.DeadLettersOf, sub.Name}]
	if ok {
		err = sub.Conflict(s.Subscription)
	} else {
		s, err = b.create(sub)
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe %q: %w", sub.Name, err)
	}
	return &source{subscription: s}, nil
}

func (b *Broker) create(sub messaging.Subscription) (*subscription, error) {
	if sub.Expires > 0 || sub.Start != messaging.StartFirst() && sub.Start != messaging.StartNew() {
		return nil, fmt.Errorf("no Expires, StartAt or StartFrom: %w", errors.ErrUnsupported)
	}
	types, err := event.ParsePattern(sub.Types...)
	if err != nil {
		return nil, err
	}
	past := b.log
	if sub.DeadLettersOf != "" {
		parent, ok := b.subs[id{"", sub.DeadLettersOf}]
		if !ok {
			return nil, fmt.Errorf("dead letters of %q: %w", sub.DeadLettersOf, messaging.ErrNotFound)
		}
		past = parent.dead
	}
	s := &subscription{Subscription: sub, broker: b, types: types}
	if !sub.Start.New() {
		for _, n := range past {
			s.add(n)
		}
	}
	b.subs[id{sub.DeadLettersOf, sub.Name}] = s
	return s, nil
}

// Close ends the broker and its sources. It is idempotent.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, s := range b.subs {
		s.wake()
	}
	return nil
}

// refuse returns why a call is refused, whatever it asks for.
func refuse(ctx context.Context, closed bool) error {
	if closed {
		return messaging.ErrClosed
	}
	return ctx.Err()
}

// canonical returns a copy of e in the form that every provider delivers: what
// the codec makes of it [EVT-3].
func canonical(e event.Event) (event.Event, error) {
	header := make(map[string][]string)
	body, err := event.NATS.Encode(e, header)
	if err != nil {
		return event.Event{}, err
	}
	return event.NATS.Decode(header, bytes.Clone(body))
}
