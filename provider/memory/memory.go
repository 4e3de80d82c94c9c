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
// codec of a real binding, so what a handler sees is what it would see in
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
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// Options are the settings of a broker. The zero value and nil stand for the
// defaults.
type Options struct {
	// MaxEvents and MaxBytes bound the log. MaxBytes counts events as they
	// are encoded, without the overhead of keeping them. Default 1<<20 events
	// and 1<<30 bytes.
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
	hostile *hostility // nil: it is not

	mu sync.Mutex
	// Below, and all that hangs on it: under mu.
	closed    bool
	log       *log
	dead      map[string]*log // dead letters, by subscription
	raw       map[string][]*messaging.DecodeError
	consumers map[identity]*consumer
	window    []storedID         // what was stored within it, oldest first, and some before
	gone      uint64             // how many left it
	stored    map[eventID]uint64 // where each is: gone plus the index in window
}

var _ messaging.Broker = (*Broker)(nil)

type identity struct{ deadLettersOf, name string }

type eventID struct{ source, id string }

type storedID struct {
	eventID
	at time.Time
}

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
		stored:    make(map[eventID]uint64),
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
	entries := make([]*entry, len(events))
	for i, e := range events {
		header := make(map[string][]string, 12)
		body, err := event.NATS.Encode(e, header)
		if err != nil {
			return fmt.Errorf("%w: %w", messaging.ErrInvalid, err)
		}
		entries[i] = &entry{
			id:     eventID{e.Source(), e.ID()},
			typ:    e.Type(),
			header: header,
			body:   slices.Clone(body),
			size:   int64(event.Size(e)),
		}
	}
	if b.hostile != nil {
		return b.hostile.publish(ctx, b, entries)
	}
	return b.store(entries)
}

// store appends what is not a duplicate, or nothing if it does not fit.
func (b *Broker) store(entries []*entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return messaging.ErrClosed
	}
	now := time.Now()
	b.forget(now, 2*len(entries)+1<<12)
	fresh := make([]*entry, 0, len(entries))
	var size int64
	for _, e := range entries {
		if e.id.id != "" {
			if b.duplicate(e.id, now) {
				continue
			}
			b.stored[e.id] = b.gone + uint64(len(b.window))
			b.window = append(b.window, storedID{e.id, now})
		}
		fresh = append(fresh, e)
		size += e.size
	}
	if err := b.makeRoom(len(fresh), size); err != nil {
		return b.full(entries, fresh, now, err)
	}
	for _, e := range fresh {
		e.stored = now
		b.log.append(e)
	}
	b.log.wake(fresh, now)
	return nil
}

// full takes back what store noted of the events that it could not store, and
// says for each event of the call what became of it.
func (b *Broker) full(entries, fresh []*entry, now time.Time, err error) error {
	for _, e := range fresh {
		if e.id.id != "" {
			delete(b.stored, e.id)
			b.window = b.window[:len(b.window)-1]
		}
	}
	if len(entries) == 1 {
		return err
	}
	errs := make([]error, len(entries))
	for i, e := range entries {
		// What is stored still was there before the call. The duplicate of an
		// event of this call is not.
		if !b.duplicate(e.id, now) {
			errs[i] = err
		}
	}
	return &reactor.BatchError{Errors: errs}
}

// duplicate reports whether id was stored within the deduplication window.
func (b *Broker) duplicate(id eventID, now time.Time) bool {
	at, ok := b.stored[id]
	return ok && now.Sub(b.window[at-b.gone].at) < b.opts.Duplicates
}

// forget drops ids that have left the deduplication window, so many at most: a
// million that leave it together would hold the broker up.
func (b *Broker) forget(now time.Time, most int) {
	for ; most > 0 && len(b.window) > 0 && now.Sub(b.window[0].at) >= b.opts.Duplicates; most-- {
		if id := b.window[0].eventID; b.stored[id] == b.gone { // not stored anew since
			delete(b.stored, id)
		}
		b.window[0] = storedID{}
		b.window = b.window[1:]
		b.gone++
	}
}

// makeRoom makes the log fit for more, or says that it does not.
func (b *Broker) makeRoom(count int, size int64) error {
	if count > b.opts.MaxEvents || size > b.opts.MaxBytes {
		return fmt.Errorf("%w: %d events of %d bytes at once, of %d and %d at most", messaging.ErrFull, count, size, b.opts.MaxEvents, b.opts.MaxBytes)
	}
	for b.log.len()+count > b.opts.MaxEvents || b.log.size+size > b.opts.MaxBytes {
		if !b.opts.DiscardOldest {
			return fmt.Errorf("%w: %d events of %d, %d bytes of %d", messaging.ErrFull, b.log.len(), b.opts.MaxEvents, b.log.size, b.opts.MaxBytes)
		}
		b.log.dropOldest()
	}
	return nil
}

// Inject stores a message as somebody else might have put it there, event or
// not, for tests of what a service does about it [RCV-5]. The broker keeps
// neither argument. Subscriptions with Types see it if its ce-type header is a
// type that they select.
func (b *Broker) Inject(header map[string][]string, body []byte) error {
	e := &entry{header: cloneHeader(header), body: slices.Clone(body), size: int64(len(body))}
	if v := header["ce-type"]; len(v) > 0 {
		e.typ = v[0]
	}
	if d, err := event.NATS.Decode(e.header, e.body); err == nil {
		e.typ = d.Type()
	}
	return b.store([]*entry{e})
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
	if b.closed {
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
	b.closed = true
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
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return messaging.ErrClosed
	}
	return ctx.Err()
}

// errNoRoom is why an event cannot join the dead letters.
var errNoRoom = errors.New("memory: the dead letters are at their bound")
