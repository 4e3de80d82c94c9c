package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// Hostile makes a broker the worst one that is still right: it keeps the
// contract to the letter and does the nastiest that the letter allows, for
// tests of what a service does about it. A service that works on a hostile
// broker leans on nothing that it was not promised.
//
// What such a broker never does: lose an event that Publish said is stored, or
// forget a Reject; deliver an event whose Ack it has confirmed and not undone;
// hand an event to two members at a time; break the order that RCV-3 promises
// to a lone member or to MaxInFlight 1; return errors from Receive that RCV-1
// does not name; or fail a settle that it has carried out. No event becomes a
// dead letter without having been delivered. Of the capabilities it has
// Positions, Fenced and Expires, and no longer OrderedPublish, ExactAttempts
// and ConfirmedAck.
//
// Each rate is a probability, at most 1. Zero stands for the default, which is
// meant to be met in a test of a hundred events; a negative rate is never. No
// event has its acks undone, or is lost with a member, more than twice each,
// and no settle fails more than twice, so everything ends, at any rate, but
// for the Publish that always fails at a rate of 1.
//
// What befalls an event follows from Seed, the subscription's name, and the
// event's sequence and attempt, and what befalls a call to Publish or Receive
// from its number: the same program has the same bad luck each time, as far as
// goroutines let it. All pauses are timers, virtual in a bubble of
// testing/synctest, and there is no goroutine.
type Hostile struct {
	// Seed selects the bad luck.
	Seed uint64

	// Slow is the rate of calls that take a while, up to MaxDelay: a Publish
	// that succeeds, after it has stored, so that a handler may have the event
	// by then; a Receive before it takes anything, also one that waited; a settle and an
	// extend before they do anything. Their contexts cut them short: a Publish
	// then fails with ErrUnknown, as its events are stored [PUB-6], and the
	// others have done nothing [RCV-1, ACK-6]. A lost delivery is delivered
	// again at most four times MaxDelay later than AckWait says [ACK-2].
	// Defaults 0.2 and 20 ms.
	Slow     float64
	MaxDelay time.Duration

	// FailPublish is the rate of calls that fail part-way: what stands before
	// some event of the call is stored, what stands behind it is not, and that
	// one is or is not [PUB-6]. Errors wrap ErrUnknown; those of several
	// events come in a BatchError. Default 0.1.
	FailPublish float64

	// PublishGaps is the rate, among calls of several events that fail, of
	// those that fail here and there instead, so that published again what
	// failed stands behind what came after it [PUB-2, CAP OrderedPublish].
	// Default 0.5.
	PublishGaps float64

	// Shuffle is the rate of deliveries that jump the queue: retries that are
	// due, and once two members at a time have received, or something was
	// released, first attempts too [RCV-3]. None is passed over more than
	// three times. In strict order nothing jumps. Default 0.5.
	Shuffle float64

	// FailSettle is the rate of settles and extends that return an error and
	// do nothing [ACK-5, ACK-6]. Default 0.1.
	FailSettle float64

	// UndoAck is the rate of acks that return nil and are undone, as by a
	// connection that breaks with them [ACK-1, CAP ConfirmedAck]: the delivery
	// stays out and is lost when AckWait has run out. It has failed then; if
	// it was the last, the event becomes a dead letter although a handler
	// succeeded [DLQ-1]. Default 0.05.
	UndoAck float64

	// Vanish is the rate of deliveries that go to a member that is dead: they
	// reach nobody and are lost when AckWait has run out, so the first that is
	// seen of an event may be its third attempt [RCV-2, CAP ExactAttempts].
	// An event's last attempt does not vanish. Default 0.05.
	Vanish float64

	// BuryTwice is the rate of events that become two dead letters, as by a
	// crash between storing the first and settling the original [DLQ-3].
	// Default 0.1.
	BuryTwice float64
}

// errHostile is what went wrong, on a hostile broker.
var errHostile = errors.New("memory: the broker is hostile")

// hostility is what a Hostile does to a broker: one method for each place
// where it does something. On a nil one they do nothing.
type hostility struct {
	Hostile
	calls atomic.Uint64 // to Publish and Receive, and settles
}

// harm counts what befell an item.
type harm struct{ undone, vanished, passed uint8 }

// mostHarm is how often the same thing befalls an item or a settle; mostPassed
// is how often others are delivered before it.
const (
	mostHarm   = 2
	mostPassed = 3
)

// newHostility fills in the defaults. It panics on what is out of range.
func newHostility(h *Hostile) *hostility {
	if h == nil {
		return nil
	}
	x := &hostility{Hostile: *h}
	for _, r := range []struct {
		rate  *float64
		usual float64
	}{
		{&x.Slow, 0.2}, {&x.FailPublish, 0.1}, {&x.PublishGaps, 0.5}, {&x.Shuffle, 0.5},
		{&x.FailSettle, 0.1}, {&x.UndoAck, 0.05}, {&x.Vanish, 0.05}, {&x.BuryTwice, 0.1},
	} {
		if !(*r.rate <= 1) || x.MaxDelay < 0 { // NaN is out of range, too
			panic(fmt.Sprintf("memory: options out of range: %+v", *h))
		}
		if *r.rate == 0 {
			*r.rate = r.usual
		}
	}
	if x.MaxDelay == 0 {
		x.MaxDelay = 20 * time.Millisecond
	}
	return x
}

// A matter is what is decided; each has draws of its own.
type matter uint64

const (
	slow matter = iota + 1
	delay
	failPublish
	publishGaps
	cut
	stored
	shuffle
	jump
	failSettle
	undoAck
	vanish
	buryTwice
)

// draw returns a number that follows from the seed, the matter and the keys.
func (x *hostility) draw(m matter, keys ...uint64) uint64 {
	h := x.Seed
	for _, k := range append(keys, uint64(m)) {
		// A round of splitmix64.
		h += k + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// happens reports whether a matter of that rate comes about.
func (x *hostility) happens(m matter, rate float64, keys ...uint64) bool {
	return float64(x.draw(m, keys...)>>11)/(1<<53) < rate
}

// befalls is happens for an item.
func (x *hostility) befalls(m matter, rate float64, c *consumer, it *item, keys ...uint64) bool {
	name := fnv.New64a()
	name.Write([]byte(c.sub.DeadLettersOf + "/" + c.sub.Name))
	return x.happens(m, rate, append(keys, name.Sum64(), it.entry.seq, uint64(it.attempt))...)
}

// pause takes a while, or not. It returns the context's error if that ended
// meanwhile. No lock is held.
func (x *hostility) pause(ctx context.Context) error {
	if x == nil {
		return nil
	}
	call := x.calls.Add(1)
	if !x.happens(slow, x.Slow, call) {
		return nil
	}
	timer := time.NewTimer(time.Duration(x.draw(delay, call)%uint64(x.MaxDelay)) + 1)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle is pause for a settle, whose context may have ended before it [ACK-8].
func (x *hostility) settle(ctx context.Context) error {
	if x != nil && ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return x.pause(ctx)
}

// publish stores entries, or some of them.
func (x *hostility) publish(ctx context.Context, b *Broker, entries []pending) error {
	if len(entries) == 0 {
		return b.store(entries)
	}
	call := x.calls.Add(1)
	kept, errs := entries, make([]error, len(entries))
	if x.happens(failPublish, x.FailPublish, call) && b.hasRoom(entries) {
		kept = x.part(call, entries, errs)
	}
	if err := b.store(kept); err != nil {
		if len(kept) == len(entries) {
			return err
		}
		return b.store(entries) // as little as some: it says for each why
	}
	if errors.Join(errs...) == nil {
		err := x.pause(ctx)
		if err == nil {
			return nil
		}
		for i := range errs {
			errs[i] = fmt.Errorf("%w: %w", messaging.ErrUnknown, err)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return &reactor.BatchError{Errors: errs}
}

// part returns those of the entries that a call that fails stores, and fills in
// what it says for each.
func (x *hostility) part(call uint64, entries []pending, errs []error) (kept []pending) {
	gaps := len(entries) > 1 && x.happens(publishGaps, x.PublishGaps, call)
	fails := x.draw(cut, call) % uint64(len(entries))
	for i, e := range entries {
		luck := x.draw(stored, call, uint64(i))
		at := uint64(i)
		lost, unknown := at > fails, at >= fails
		if gaps {
			lost, unknown = luck%4 == 0, luck%4 <= 1 || at == fails
		} else if at == fails {
			lost = luck%2 == 0
		}
		if unknown {
			errs[i] = fmt.Errorf("%w: %w", messaging.ErrUnknown, errHostile)
		}
		if !lost {
			kept = append(kept, e)
		}
	}
	return kept
}

// hasRoom reports whether entries fit without discarding others. A broker that
// is full says so, whatever else could go wrong [RET-2].
func (b *Broker) hasRoom(entries []pending) bool {
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	size := b.log.size
	for _, e := range entries {
		size += e.entry.size
	}
	return b.log.count+len(entries) <= b.opts.MaxEvents && size <= b.opts.MaxBytes
}

// shuffle puts another item to the front of the queue. Where order is not
// promised it first queues a few new ones there, as if prefetched: no more than
// half of MaxInFlight [SUB-5]. Those of dead letters stay in their log, where
// others may end them.
func (x *hostility) shuffle(c *consumer, now time.Time) {
	if x == nil || c.sub.MaxInFlight == 1 {
		return
	}
	var due []*item
	for _, it := range c.queue {
		if !it.due.After(now) && it.dying == 0 {
			due = append(due, it)
		}
	}
	if c.mixed && c.sub.DeadLettersOf == "" {
		for len(due) < min(4, c.sub.MaxInFlight/2) {
			fresh := c.fresh()
			if fresh == nil {
				break
			}
			it := c.begin(fresh)
			c.put(it, now)
			due = append(due, it)
		}
	}
	if len(due) < 2 || c.queue[0].harm.passed >= mostPassed {
		return
	}
	first := c.queue[0]
	if !x.befalls(shuffle, x.Shuffle, c, first, uint64(first.harm.passed)) {
		return
	}
	call := x.calls.Load()
	it := due[x.draw(jump, call, first.entry.seq, c.turn)%uint64(len(due))]
	if it == first || !c.mixed && it.attempt == 1 {
		return
	}
	first.harm.passed++
	c.swap(first, it)
}

// vanishes reports whether a delivery reaches nobody. If so it is counted. What is
// no event does not vanish: there is no delivery of it.
func (x *hostility) vanishes(c *consumer, it *item) bool {
	if raw := it.entry.raw; x == nil || raw != nil && !raw.decodes || it.harm.vanished >= mostHarm || it.attempt == c.sub.MaxAttempts || !x.befalls(vanish, x.Vanish, c, it) {
		return false
	}
	it.harm.vanished++
	return true
}

// undoes reports whether an ack is undone. If so it is counted.
func (x *hostility) undoes(c *consumer, it *item) bool {
	if x == nil || it.harm.undone >= mostHarm || !x.befalls(undoAck, x.UndoAck, c, it) {
		return false
	}
	it.harm.undone++
	return true
}

// refuses returns the error with which a settle or extend fails, or nil.
func (x *hostility) refuses(h *hold) error {
	if x == nil || h.refused >= mostHarm || !x.befalls(failSettle, x.FailSettle, h.consumer, h.item, uint64(h.refused)) {
		return nil
	}
	h.refused++
	return errHostile
}

// buriesTwice reports whether an item becomes two dead letters.
func (x *hostility) buriesTwice(c *consumer, it *item) bool {
	return x != nil && x.befalls(buryTwice, x.BuryTwice, c, it)
}
