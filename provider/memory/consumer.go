package memory

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
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
	missed uint64 // events discarded before that, and not reported yet
	out    map[uint64]*item
	queue  queue    // of out, those that wait
	holds  holdList // of out, those with a member, by deadline
	turn   uint64   // counts what was put into queue

	waiters   waiterList
	signalled int         // waiters that were woken and have not come yet
	starving  int         // waiters that came in vain; others stand in line behind them
	timer     *time.Timer // wakes a waiter
	alarm     time.Time   // when it does; zero: it is not set
	reports   []error     // for the next caller to pass on
}

// An item is an event that is out.
type item struct {
	entry   *entry
	attempt int
	reason  string    // of the last failure
	failed  time.Time // when that was
	hold    *hold     // nil while it is in the queue
	due     time.Time
	turn    uint64
	dying   int // failed tries to bury it; it is handed to nobody meanwhile
	harm    harm
}

func newConsumer(b *Broker, l *log, sub messaging.Subscription) *consumer {
	c := &consumer{
		broker:  b,
		log:     l,
		members: make(map[*source]struct{}),
		out:     make(map[uint64]*item),
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
}

// position is the first sequence that a start selects.
func (c *consumer) position(s messaging.Start) uint64 {
	if s.New() {
		return c.log.end()
	}
	if t, ok := s.Time(); ok {
		return c.log.since(t)
	}
	if seq, ok := s.Sequence(); ok {
		return max(seq, c.log.first) // also one that is yet to come
	}
	return c.log.first
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
	for w := c.waiters.pop(); w != nil; w = c.waiters.pop() {
		c.signal(w)
	}
	c.idle()
}

// reset forgets every event that is out: holds settle nothing any more.
func (c *consumer) reset() {
	c.out = make(map[uint64]*item)
	c.queue = nil
	c.holds = holdList{}
	c.mixed, c.taker = false, nil
}

// take returns the next item that may be delivered, held by s, or nil.
func (c *consumer) take(s *source, now time.Time) *item {
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
	it.hold = &hold{consumer: c, source: s, item: it}
	return it
}

// begin makes an item of an entry that fresh returned.
func (c *consumer) begin(fresh *entry) *item {
	it := &item{entry: fresh, attempt: 1}
	c.out[fresh.seq] = it
	c.next = fresh.seq + 1
	return it
}

// ready says what take would hand out: the first of the queue, if it is due,
// before anything new.
func (c *consumer) ready(now time.Time) (queued bool, fresh *entry) {
	if len(c.queue) > 0 && !c.queue[0].due.After(now) {
		return true, nil
	}
	return false, c.fresh()
}

// fresh is the next entry that was not out yet, or nil if there is none or no
// room for it.
func (c *consumer) fresh() *entry {
	if len(c.out) >= c.sub.MaxInFlight {
		return nil
	}
	for c.next = max(c.next, c.log.first); c.next < c.log.end(); c.next++ {
		if e := c.log.at(c.next); e != nil && c.match.Match(e.typ) {
			return e
		}
	}
	return nil
}

// update brings the state up to now: fails the holds that ran out, and tries
// again to bury what could not be.
func (c *consumer) update(now time.Time) {
	if c.missed > 0 {
		c.reports = append(c.reports, &messaging.DiscardedError{Subscription: c.sub.Name, Count: c.missed})
		c.missed = 0
	}
	for h := c.holds.front(); h != nil && !h.deadline.After(now); h = c.holds.front() {
		c.holds.remove(h)
		c.fail(h.item, h.deadline, 0, fmt.Sprintf("not settled within %v", c.sub.AckWait), now)
	}
	for len(c.queue) > 0 && c.queue[0].dying > 0 && !c.queue[0].due.After(now) {
		c.bury(heap.Pop(&c.queue).(*item), now)
	}
}

// arm gives a taken item its deadline: the delivery begins.
func (c *consumer) arm(h *hold, now time.Time) {
	h.deadline = now.Add(c.sub.AckWait)
	c.holds.insert(h)
}

// valid returns nil for a hold that can be settled or extended, or else why it
// cannot.
func (c *consumer) valid(h *hold, now time.Time) error {
	c.update(now)
	if h.item.hold != h || c.out[h.item.entry.seq] != h.item {
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
	c.holds.remove(h)
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
	c.holds.remove(h)
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
	delete(c.out, it.entry.seq)
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
		c.put(it, now.Add(buryBackoff(it.dying)))
	default:
		c.done(it)
		letter := *it.entry
		letter.stored = now
		letter.annotations = messaging.DeadLetter{
			Subscription: c.sub.Name,
			Reason:       it.reason,
			Attempts:     it.attempt,
			Sequence:     it.entry.seq,
			Stored:       it.entry.stored,
			Died:         it.failed,
		}.Annotations()
		dead.append(&letter)
		if dead.len() < c.broker.opts.MaxDeadLetters && c.broker.hostile.buriesTwice(c, it) {
			again := letter
			dead.append(&again)
		}
		dead.wake([]*entry{&letter}, now)
	}
}

var buryBackoff = reactor.Exponential(100*time.Millisecond, 10*time.Second)

// release puts back what the member s holds.
func (c *consumer) release(s *source, now time.Time) {
	c.update(now)
	for h := c.holds.front(); h != nil; {
		next := h.after
		if h.source == s {
			c.holds.remove(h)
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
	if c.waiters.empty() || c.signalled > 0 {
		return
	}
	c.update(now)
	if queued, fresh := c.ready(now); queued || fresh != nil || len(c.reports) > 0 {
		c.signal(c.waiters.pop())
		c.idle()
		return
	}
	var due time.Time
	if h := c.holds.front(); h != nil {
		due = h.deadline
	}
	if len(c.queue) > 0 && (due.IsZero() || c.queue[0].due.Before(due)) {
		due = c.queue[0].due
	}
	if due.IsZero() || !c.alarm.IsZero() && !due.Before(c.alarm) {
		return
	}
	c.alarm = due
	if c.timer == nil {
		c.timer = time.AfterFunc(due.Sub(now), c.ring)
	} else {
		c.timer.Reset(due.Sub(now))
	}
}

// ring is called by the timer.
func (c *consumer) ring() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	c.alarm = time.Time{}
	if !c.waiters.empty() && c.signalled == 0 {
		// Reports may have come up, too, and who is woken passes them on.
		c.signal(c.waiters.pop())
		c.idle()
	}
}

// wait registers a Receive that found nothing, though it may have been woken.
func (c *consumer) wait(w *waiter, woken bool, now time.Time) {
	if w.starving = woken; woken {
		c.starving++
		c.waiters.pushFront(w)
	} else {
		c.waiters.push(w)
	}
	c.log.waiting[c] = struct{}{}
	c.kick(now)
}

// signal wakes a waiter that is off the list.
func (c *consumer) signal(w *waiter) {
	w.signalled = true
	c.signalled++
	w.wake <- struct{}{} // has room for one
}

// arrive undoes signal, or wait, when the waiter has come back. It reports
// whether the waiter was woken.
func (c *consumer) arrive(w *waiter) (woken bool) {
	if w.starving {
		c.starving--
	}
	if w.signalled {
		w.signalled = false
		c.signalled--
		select {
		case <-w.wake: // it came for another reason
		default:
		}
		return true
	}
	c.waiters.remove(w)
	c.idle()
	return false
}

// idle notes that nobody waits, once that is so.
func (c *consumer) idle() {
	if c.waiters.empty() {
		delete(c.log.waiting, c)
	}
}
