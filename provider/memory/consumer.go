package memory

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/internal/local"
	"github.com/catchment-events/catchment/reactor"
)

// A consumer is one subscription: its position in a log, and the state of each
// event that is out. An event is out from its first delivery until it is acked
// or dead, and then it is in one of two places: with a member, on a hold that
// has a deadline, or in the queue, until it is due again.
//
// There is no goroutine to watch the time. Whoever calls in first brings the
// state up to date: a hold whose deadline is past has failed, whether or not
// anybody looked. Only while a Receive waits is a timer set, for the next thing
// that becomes due.
//
// All of it is under the broker's mutex.
type consumer struct {
	broker  *Broker
	log     *log
	sub     messaging.Subscription
	match   event.Pattern
	members map[*source]struct{}
	left    time.Time // when the last member closed
	deleted bool
	taker   *source // the member that received last
	mixed   bool    // two members received, or something was released: first attempts have no order [RCV-3]

	next   uint64 // the first sequence that was not looked at
	ahead  ahead  // what was read from there on
	missed uint64 // events discarded before that, and not reported yet
	out    itemList
	queue  local.Queue[*item] // of out, those that wait
	holds  local.List[*hold]  // of out, those with a member, by deadline
	turn   uint64             // counts what was put into queue

	line    local.Line[*source] // of Receives that wait
	waiting place               // in the log's list, while there are any
	reports []error             // for the next caller to pass on
}

// An item is an event that is out.
type item struct {
	entry   entry
	attempt int
	reason  string    // of the last failure
	failed  time.Time // when that was
	hold    *hold     // nil while it is in the queue
	due     time.Time
	turn    uint64
	dying   int32 // failed tries to bury it; it is handed to nobody meanwhile
	harm    harm

	out           bool  // of its consumer's: not ended, nor forgotten by a seek
	before, after *item // in the consumer's out
	first         hold  // of the first delivery, which for most is the only one
}

func newConsumer(b *Broker, l *log, sub messaging.Subscription) *consumer {
	c := &consumer{
		broker:  b,
		log:     l,
		members: make(map[*source]struct{}),
		left:    time.Now(),
	}
	c.configure(sub)
	c.next = c.position(sub.Start)
	l.consumers[c] = struct{}{}
	return c
}

// configure gives the consumer its settings.
func (c *consumer) configure(sub messaging.Subscription) {
	match, err := event.ParsePattern(sub.Types...)
	if err != nil {
		panic(err) // Normalize has let it pass
	}
	c.sub, c.match = sub, match
	c.forgetAhead()
	if c.waiting.number != 0 {
		c.log.waiting.push(c) // it was asked about the types before
	}
}

// position is the first sequence that a start selects.
func (c *consumer) position(s messaging.Start) uint64 {
	if s.New() {
		return c.log.end.Load()
	}
	if t, ok := s.Time(); ok {
		// What is being stored has its time already, and may not have its place.
		c.broker.storing.Lock()
		defer c.broker.storing.Unlock()
		return c.log.since(t)
	}
	if seq, ok := s.Sequence(); ok {
		return max(seq, c.log.first.Load()) // also one that is yet to come
	}
	return c.log.first.Load()
}

func (c *consumer) expired(now time.Time) bool {
	return c.sub.Expires > 0 && len(c.members) == 0 && now.Sub(c.left) >= c.sub.Expires
}

// delete removes the consumer; its members' Receives return ErrNotFound. Its
// dead letters stay, if there are any or somebody subscribes to them.
func (c *consumer) delete() {
	c.deleted = true
	delete(c.broker.consumers, identity{c.sub.DeadLettersOf, c.sub.Name})
	delete(c.log.consumers, c)
	if dead := c.broker.dead[c.sub.Name]; c.sub.DeadLettersOf == "" && dead.len() == 0 && len(dead.consumers) == 0 && len(c.broker.raw[c.sub.Name]) == 0 {
		delete(c.broker.dead, c.sub.Name)
	}
	c.reset()
	c.line.All()
	c.idle()
}

// reset forgets every event that is out: holds settle nothing any more.
func (c *consumer) reset() {
	for c.out.first != nil {
		c.out.remove(c.out.first)
	}
	c.queue = nil
	c.holds = local.List[*hold]{}
	c.mixed, c.taker = false, nil
}

// take returns a hold of s on the next item that may be delivered, or nil. It has no
// deadline yet.
func (c *consumer) take(s *source, now time.Time) *hold {
	c.update(now)
	c.broker.hostile.shuffle(c, now)
	var it *item
	switch queued, fresh := c.ready(now); {
	case queued:
		it = heap.Pop(&c.queue).(*item)
	case fresh != nil:
		it = c.begin(fresh)
	default:
		return nil
	}
	c.mixed = c.mixed || c.taker != nil && c.taker != s && !c.taker.closed
	c.taker = s
	h := &it.first
	if h.item != nil {
		h = new(hold) // somebody may still have that one
	}
	h.consumer, h.source, h.item = c, s, it
	it.hold = h
	return h
}

// ready says what take would hand out: the first of the queue, if it is due,
// before anything new.
func (c *consumer) ready(now time.Time) (queued bool, fresh *entry) {
	if len(c.queue) > 0 && !c.queue[0].due.After(now) {
		return true, nil
	}
	return false, c.fresh()
}

// update brings the state up to now: fails the holds that ran out, and tries
// again to bury what could not be.
func (c *consumer) update(now time.Time) {
	c.miss()
	if c.missed > 0 {
		c.reports = append(c.reports, &messaging.DiscardedError{Subscription: c.sub.Name, Count: c.missed})
		c.missed = 0
	}
	for h := c.holds.Front(); h != nil && !h.deadline.After(now); h = c.holds.Front() {
		c.holds.Remove(h)
		c.fail(h.item, h.deadline, 0, fmt.Sprintf("not settled within %v", c.sub.AckWait), now)
	}
	for len(c.queue) > 0 && c.queue[0].dying > 0 && !c.queue[0].due.After(now) {
		c.bury(heap.Pop(&c.queue).(*item), now)
	}
}

// arm gives a hold its deadline: the delivery begins.
func (c *consumer) arm(h *hold, now time.Time) {
	h.deadline = now.Add(c.sub.AckWait)
	c.holds.Insert(h)
}

// valid returns nil for a hold that can be settled or extended, or else why it
// cannot.
func (c *consumer) valid(h *hold, now time.Time) error {
	c.update(now)
	if !h.holds() {
		return reactor.ErrLost
	}
	return c.broker.hostile.refuses(h)
}

// settle ends a valid hold. The item goes where o says.
func (c *consumer) settle(h *hold, o reactor.Outcome, now time.Time) {
	it := h.item
	if o.Result == reactor.Acked && c.broker.hostile.undoes(c, it) {
		h.source = nil // stays until it runs out, also when the member closes
		return
	}
	c.holds.Remove(h)
	switch o.Result {
	case reactor.Acked:
		c.done(it)
		if c.sub.DeadLettersOf != "" {
			c.log.remove(it.entry.seq)
		}
	case reactor.Released:
		c.mixed = true
		c.put(it, now)
	case reactor.Rejected:
		it.reason, it.failed = o.Reason, now
		c.bury(it, now)
	case reactor.Retried:
		c.fail(it, now, o.After, o.Reason, now)
	}
	c.kick(now)
}

// extend moves the deadline of a valid hold, to AckWait after began.
func (c *consumer) extend(h *hold, began time.Time) time.Time {
	c.holds.Remove(h)
	c.arm(h, began)
	return h.deadline
}

// fail counts a delivery that failed at some time, now or before: the item is
// due again after a delay, or dead.
func (c *consumer) fail(it *item, at time.Time, after time.Duration, reason string, now time.Time) {
	it.reason, it.failed = reason, at
	if c.sub.MaxAttempts > 0 && it.attempt >= c.sub.MaxAttempts {
		c.bury(it, now)
		return
	}
	it.attempt++
	c.put(it, at.Add(max(after, 0)))
}

// put queues an item until due.
func (c *consumer) put(it *item, due time.Time) {
	c.turn++
	it.hold, it.due, it.turn = nil, due, c.turn
	heap.Push(&c.queue, it)
}

// done ends an item.
func (c *consumer) done(it *item) {
	it.hold = nil
	c.out.remove(it)
}

// bury moves an item to the dead letters. Of a dead letter's own subscription
// it ends the item, and leaves the dead letter where it is [DLQ-4]. While the
// dead letters are full it keeps the item, queued for another try [DLQ-3].
func (c *consumer) bury(it *item, now time.Time) {
	dead := c.broker.dead[c.sub.Name]
	switch {
	case c.sub.DeadLettersOf != "":
		c.done(it)
	case dead.len() >= c.broker.opts.MaxDeadLetters:
		it.dying++
		c.reports = append(c.reports, fmt.Errorf("messaging: subscription %q: event %d cannot join the dead letters, and is kept: %w", c.sub.Name, it.entry.seq, errNoRoom))
		c.put(it, now.Add(buryBackoff(int(it.dying))))
	default:
		c.done(it)
		letter := it.entry
		letter.stored = now
		letter.annotations = messaging.DeadLetter{
			Subscription: c.sub.Name,
			Reason:       it.reason,
			Attempts:     it.attempt,
			Sequence:     it.entry.seq,
			Stored:       it.entry.stored,
			Died:         it.failed,
		}.Annotations()
		dead.add(&letter)
		if dead.len() < c.broker.opts.MaxDeadLetters && c.broker.hostile.buriesTwice(c, it) {
			dead.add(&letter)
		}
		dead.waiting.wake(letter.typ, now)
	}
}

var buryBackoff = reactor.Exponential(100*time.Millisecond, 10*time.Second)

// release puts back what the member s holds.
func (c *consumer) release(s *source, now time.Time) {
	c.update(now)
	for h := c.holds.Front(); h != nil; {
		next := h.After()
		if h.source == s {
			c.holds.Remove(h)
			c.put(h.item, now)
			c.mixed = true
		}
		h = next
	}
	c.kick(now)
}

// kick wakes a waiter if there is something for it, and otherwise sets the
// timer. One at a time is enough: who was woken kicks again when it leaves.
func (c *consumer) kick(now time.Time) {
	if c.line.Quiet() {
		return
	}
	c.update(now)
	if queued, fresh := c.ready(now); queued || fresh != nil || len(c.reports) > 0 {
		c.line.Next()
		c.idle()
		return
	}
	var due time.Time
	if h := c.holds.Front(); h != nil {
		due = h.deadline
	}
	if len(c.queue) > 0 && (due.IsZero() || c.queue[0].due.Before(due)) {
		due = c.queue[0].due
	}
	c.line.SetAlarm(due, now, c.ring)
}

// ring is called by the alarm.
func (c *consumer) ring() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if c.line.Rang() {
		c.idle() // reports may have come up, too, and who is woken passes them on
	}
}

// wait registers a Receive that found nothing, though it may have been woken.
func (c *consumer) wait(w *waiter, woken bool, now time.Time) {
	c.line.Join(w, woken)
	if c.waiting.number == 0 {
		c.log.waiting.push(c)
	}
	c.kick(now)
}

// arrive undoes wait when the waiter has come back. It reports whether the waiter
// was woken.
func (c *consumer) arrive(w *waiter) (woken bool) {
	if woken = c.line.Arrive(w); !woken {
		c.idle()
	}
	return woken
}

// idle notes that nobody waits, once that is so.
func (c *consumer) idle() {
	if c.line.Empty() {
		c.log.waiting.remove(c)
	}
}
