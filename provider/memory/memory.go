// Package memory is a broker in the process's own memory: the double that
// tests use in place of a server, and a broker for programs that need no other.
//
//	broker := memory.New(nil)
//	defer broker.Close()
//
// # Behaviour
//
// It keeps the whole contract of package messaging, as a server does: events
// are encoded when they are published and decoded for each delivery, by the
// rules of a real binding, so what a handler sees is what it would see in
// production. Subscriptions, their positions and their dead letters last as
// long as the broker; nothing outlives the process.
//
// Of the capabilities it offers OrderedPublish, Positions, ExactAttempts,
// ConfirmedAck, Fenced and Expires. Durable and Synced it cannot offer.
//
// # Testing
//
// A broker runs in a [testing/synctest] bubble: it starts no goroutines, reads
// no clock but time.Now, and its deadlines and delays are exact, to the
// nanosecond of virtual time. With [Options].Hostile it does the worst that the
// contract allows instead.
package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// Options are the settings of a broker. The zero value and nil stand for the
// defaults.
type Options struct {
	// MaxEvents and MaxBytes bound the log. MaxBytes counts events as they
	// are encoded for it, a little less than [event.Size], without the overhead
	// of keeping them. Default 1<<20 events and 1<<30 bytes.
	MaxEvents int
	MaxBytes  int64

	// DiscardOldest makes room for new events by dropping the oldest,
	// received or not; a subscription that loses some is told through its
	// report [RET-3]. Default: Publish refuses with ErrFull [RET-2].
	DiscardOldest bool

	// MaxDeadLetters bounds the dead letters of each subscription. At the
	// bound an event that should join them stays where it is, is handed to
	// nobody, and is tried again [DLQ-3]. Default 1<<20.
	MaxDeadLetters int

	// Duplicates is the deduplication window [PUB-3]. Default
	// messaging.DefaultDuplicates.
	Duplicates time.Duration

	// Hostile, if not nil, makes the broker do its worst within the contract,
	// for tests. New copies it. Default: the broker is as kind as it can be.
	Hostile *Hostile
}

// A Broker is a log in memory with its subscriptions. Its methods are safe for
// concurrent use. It implements [messaging.Broker].
type Broker struct {
	opts    Options
	hostile *hostility  // nil: it is not
	closed  atomic.Bool // becomes true under mu

	log *log

	_ apart
	// Who stores holds storing throughout, and the log's own mutex, which those who
	// receive take too, only while it adds the entries. Of the three, mu is first and
	// the log's is last.
	storing sync.Mutex
	window  window // under storing, but for its key, which needs no lock

	_  apart
	mu sync.Mutex
	// Below, and all that hangs on it but for the entries of logs: under mu.
	dead      map[string]*log // dead letters, by subscription
	raw       map[string][]*messaging.DecodeError
	consumers map[identity]*consumer
}

var _ messaging.Broker = (*Broker)(nil)

// apart keeps what those who publish write off the cache lines of what those who
// receive do, and both off what is only read: every write takes its line away from
// the other processors.
type apart [64]byte

type identity struct{ deadLettersOf, name string }

// New returns an empty broker. It panics on options that are negative, and on
// rates above 1.
func New(opts *Options) *Broker {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.MaxEvents < 0 || o.MaxBytes < 0 || o.MaxDeadLetters < 0 || o.Duplicates < 0 {
		panic(fmt.Sprintf("memory: negative options: %+v", o))
	}
	if o.MaxEvents == 0 {
		o.MaxEvents = 1 << 20
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	if o.MaxDeadLetters == 0 {
		o.MaxDeadLetters = 1 << 20
	}
	if o.Duplicates == 0 {
		o.Duplicates = messaging.DefaultDuplicates
	}
	return &Broker{
		opts:      o,
		hostile:   newHostility(o.Hostile),
		log:       newLog(),
		dead:      make(map[string]*log),
		raw:       make(map[string][]*messaging.DecodeError),
		consumers: make(map[identity]*consumer),
		window:    newWindow(o.Duplicates),
	}
}

// Publish stores the events: all of them, or on an error none
// [CAP OrderedPublish], unless the broker is hostile. See [messaging.Publisher] for the contract.
func (b *Broker) Publish(ctx context.Context, events ...event.Event) error {
	if err := b.refusal(ctx); err != nil {
		return err
	}
	if err := messaging.CheckEvents(messaging.MaxEventSize, events...); err != nil {
		return err
	}
	var one [1]pending // most calls have one event, and then need no other list
	entries := one[:0]
	if len(events) > 1 {
		entries = make([]pending, 0, len(events))
	}
	for _, e := range events {
		entry, err := encode(e)
		if err != nil {
			return fmt.Errorf("%w: %w", messaging.ErrInvalid, err)
		}
		entries = append(entries, pending{entry: entry, key: b.window.key(e)})
	}
	if b.hostile != nil {
		return b.hostile.publish(ctx, b, slices.Clone(entries))
	}
	return b.store(entries)
}

// Inject stores a message as somebody else might have put it there, event or
// not, for tests of what a service does about it [RCV-5]. The broker keeps
// neither argument. Subscriptions with Types see it if its ce-type header is a
// type that they select.
func (b *Broker) Inject(header map[string][]string, body []byte) error {
	m := &message{header: cloneHeader(header), body: slices.Clone(body)}
	e := entry{raw: m, size: int64(len(body))}
	if v := header["ce-type"]; len(v) > 0 {
		e.typ = v[0]
	}
	if d, err := event.NATS.Decode(m.header, m.body); err == nil {
		e.typ, m.decodes = d.Type(), true
	}
	return b.store([]pending{{entry: e}})
}

func cloneHeader(header map[string][]string) map[string][]string {
	out := make(map[string][]string, len(header))
	for name, values := range header {
		out[name] = slices.Clone(values)
	}
	return out
}

// Subscribe opens a member. See [messaging.Subscriber] for the contract; the
// source is a member until its Close, or that of the broker.
func (b *Broker) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	if err := b.refusal(ctx); err != nil {
		return nil, err
	}
	sub, err := sub.Normalize()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return nil, messaging.ErrClosed
	}
	b.expire(time.Now())
	id := identity{sub.DeadLettersOf, sub.Name}
	c := b.consumers[id]
	if c == nil {
		log := b.log
		if sub.DeadLettersOf != "" {
			if log = b.dead[sub.DeadLettersOf]; log == nil {
				return nil, fmt.Errorf("%w: %q, whose dead letters were asked for", messaging.ErrNotFound, sub.DeadLettersOf)
			}
		}
		c = newConsumer(b, log, sub)
		b.consumers[id] = c
		if sub.DeadLettersOf == "" && b.dead[sub.Name] == nil {
			b.dead[sub.Name] = newLog()
		}
	} else if err := sub.Conflict(c.sub); err != nil {
		return nil, err
	}
	s := &source{consumer: c, report: report}
	c.members[s] = struct{}{}
	return s, nil
}

// expire deletes the consumers whose time is over. Nobody notices one that has
// expired before somebody asks for a consumer.
func (b *Broker) expire(now time.Time) {
	for _, c := range b.consumers {
		if c.expired(now) {
			c.delete()
		}
	}
}

// Close ends the broker and its sources, which release what they handed out.
// It is idempotent.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed.Store(true)
	for _, c := range b.consumers {
		for s := range maps.Clone(c.members) {
			s.close(time.Now())
		}
	}
	return nil
}

// refusal is the reason for which a call does nothing, before its arguments
// are looked at.
func (b *Broker) refusal(ctx context.Context) error {
	if b.closed.Load() {
		return messaging.ErrClosed
	}
	return ctx.Err()
}

// errNoRoom is why an event cannot join the dead letters.
var errNoRoom = errors.New("memory: the dead letters are at their bound")
