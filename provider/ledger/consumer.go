package ledger

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/internal/local"
	"github.com/catchment-events/catchment/provider/ledger/queue"
	"github.com/catchment-events/catchment/reactor"
)

// A consumer is one subscription: its position in a log, and the state of each
// event that is out. An event is out from its first delivery until it is acked
// or dead, and then it is in one of three places: with a member, on a hold that
// has a deadline; in the queue, until it is due again; or among the graves, on
// its way to the dead letters.
//
// There is no goroutine to watch the time. Whoever calls in first brings the
// state up to date: a hold whose deadline is past has failed, whether or not
// anybody looked. Only while a Receive waits is a timer set, for the next thing
// that becomes due.
//
// Nothing is read or written with the mutex held. Entries are read ahead, and
// graves dug, by the Receive that finds something to read or to bury. What
// happens to an item is appended to the journal with the mutex held, so that
// the journal has it in order, and written without.
type consumer struct {
	broker *Broker
	log    log
	id     identity

	letters *letters // its dead letters; nil: it reads those of another

	at atomic.Uint64 // a position that is on the disk, for who discards; changes under mu

	mu sync.Mutex
	// Below: under mu.
	sub       messaging.Subscription
	match     event.Pattern
	all       bool // it selects every type
	inc       uint64
	members   map[*source]struct{}
	left      time.Time // when the last member closed
	deleted   bool
	journaled uint64 // the first journal that has records that its row does not tell of; 0: none

	ahead   []queue.Entry   // entries read ahead that were not out yet
	scan    uint64          // the first sequence that was not read ahead
	moves   uint64          // how often the position was set
	passed  uint64          // entries passed over since the last record
	looked  uint64          // the last sequence that was handed out or passed over
	filling bool            // somebody reads ahead
	dead    map[uint64]bool // what is not before the position, but buried already
	rest    time.Time       // nothing is tried before that: the disk has failed
	missed  uint64          // events discarded before they were out, and not reported yet
	out     map[uint64]*item
	queue   local.Queue[*item] // of out, those that wait
	holds   local.List[*hold]  // of out, those with a member, by deadline
	graves  []*item            // of out, those to bury
	turn    uint64             // counts what was put into queue

	line    local.Line[*source] // of Receives that wait
	reports []error             // for the next caller to pass on
}

// An item is an event that is out.
type item struct {
	seq     uint64
	stored  time.Time // zero: not known before it is read again
	data    []byte    // nil: to be read again
	kept    bool      // data stays: the log has discarded the entry, or is about to
	attempt int
	reason  string    // of the last failure
	failed  time.Time // when that was
	hold    *hold     // nil while it is in the queue, or a grave
	first   hold      // the first of them: most have no other
	due     time.Time
	turn    uint64
	acked   bool // it is settled, once the disk knows
	doomed  bool // it is to join the dead letters, and is handed to nobody
	tries   int  // to bury it
}

func newConsumer(b *Broker, l log, sub messaging.Subscription, inc uint64, s *state) *consumer {
	c := &consumer{
		broker:  b,
		log:     l,
		id:      identity{sub.DeadLettersOf, sub.Name},
		inc:     inc,
		members: make(map[*source]struct{}),
		out:     make(map[uint64]*item),
		left:    s.left,
		looked:  s.looked,
	}
	c.configure(sub)
	c.move(s.next)
	return c
}

// configure gives the consumer its settings.
func (c *consumer) configure(sub messaging.Subscription) {
	match, err := event.ParsePattern(sub.Types...)
	if err != nil {
		panic(err) // Normalize has let it pass
	}
	c.sub, c.match, c.all = sub, match, len(sub.Types) == 0
}

// move sets the position.
func (c *consumer) move(next uint64) {
	c.ahead, c.scan, c.passed = nil, next, 0
	c.moves++
	c.at.Store(next)
}

// position is the first sequence that was not out, as far as it is known.
func (c *consumer) position() uint64 {
	if len(c.ahead) > 0 {
		return c.ahead[0].Seq
	}
	return c.scan
}

func (c *consumer) expired(now time.Time) bool {
	return c.sub.Expires > 0 && len(c.members) == 0 && now.Sub(c.left) >= c.sub.Expires
}

// note appends a record to the journal, and returns its place there.
func (c *consumer) note(kind recordKind, it *item) uint64 {
	r := record{kind: kind, inc: c.inc}
	if it != nil {
		r.seq, r.attempt = it.seq, it.attempt
		if kind == recordWaiting || kind == recordDying {
			r.due, r.failed, r.reason = it.due, it.failed, it.reason
		}
	}
	switch kind {
	case recordPassed:
		r.seq, r.missed = c.position(), c.missed
		c.looked = max(c.looked, r.seq-1)
	case recordLeft:
		r.due = c.left
	}
	place, number := c.broker.journal.append(r)
	if c.journaled == 0 {
		c.journaled = number
	}
	return place
}

// state is what is to be stored of the consumer.
func (c *consumer) state() *state {
	s := &state{next: c.position(), looked: c.looked, missed: c.missed, out: make(map[uint64]itemState, len(c.out))}
	if len(c.members) == 0 {
		s.left = c.left
	}
	for seq, it := range c.out {
		if it.acked {
			continue
		}
		o := itemState{attempt: it.attempt, held: it.hold != nil, dying: it.doomed, failed: it.failed, reason: it.reason}
		if it.hold == nil && !it.doomed {
			o.due = it.due
		}
		s.out[seq] = o
	}
	return s
}

// remove ends the consumer; its members' Receives return ErrNotFound.
func (c *consumer) remove() {
	c.deleted = true
	c.reset(c.inc, c.scan)
	c.line.All()
	c.idle()
}

// reset forgets every event that is out: holds settle nothing any more.
func (c *consumer) reset(inc, next uint64) {
	c.inc, c.looked = inc, 0
	c.out = make(map[uint64]*item)
	c.queue, c.graves, c.holds = nil, nil, local.List[*hold]{}
	c.missed, c.dead = 0, nil
	c.move(next)
}

// take returns the next item that may be delivered, held by s, and the place of
// the record that says so; or nil.
func (c *consumer) take(s *source, now time.Time) (it *item, place uint64) {
	c.update(now)
	switch {
	case c.rests(now):
	case c.due(now):
		it = heap.Pop(&c.queue).(*item)
		it.hold = &hold{consumer: c, source: s, item: it}
		return it, c.note(recordHeld, it)
	case len(c.ahead) > 0 && len(c.out) < c.sub.MaxInFlight:
		e := c.ahead[0]
		c.ahead[0] = queue.Entry{}
		c.ahead = c.ahead[1:]
		it = &item{seq: e.Seq, stored: e.Stored, data: e.Data, attempt: 1}
		it.first = hold{consumer: c, source: s, item: it}
		it.hold = &it.first
		c.out[e.Seq] = it
		c.looked, c.passed = e.Seq, 0
		return it, c.note(recordFirst, it)
	}
	return nil, 0
}

// due reports whether the first of the queue is.
func (c *consumer) due(now time.Time) bool {
	return len(c.queue) > 0 && !c.queue[0].due.After(now)
}

// hungry reports whether somebody should read ahead, when so many entries are left
// and more than so many are in the log.
func (c *consumer) hungry(left int) bool {
	return !c.filling && len(c.ahead) <= left && len(c.out) < c.sub.MaxInFlight && c.scan+uint64(left) < c.log.end()
}

// rests reports whether nothing is to be tried now, for the disk has failed.
func (c *consumer) rests(now time.Time) bool { return now.Before(c.rest) }

// busy reports whether there is something to do for a Receive.
func (c *consumer) busy(now time.Time) bool {
	return len(c.graves) > 0 || len(c.reports) > 0 || c.missed > 0 ||
		!c.rests(now) && (c.due(now) || len(c.ahead) > 0 && len(c.out) < c.sub.MaxInFlight || c.hungry(0))
}

// told returns what is to be reported, and takes it for reported. It returns the
// place of the record that says so, if it needs one: to be written down then.
func (c *consumer) told() (reports []error, place uint64) {
	reports = c.reports
	c.reports = nil
	if c.missed > 0 {
		reports = append(reports, &messaging.DiscardedError{Subscription: c.sub.Name, Count: c.missed})
		c.missed = 0
		place = c.note(recordPassed, nil)
	}
	return reports, place
}

// update brings the state up to now: fails the holds that ran out, and takes
// up again what could not be buried.
func (c *consumer) update(now time.Time) {
	for h := c.holds.Front(); h != nil && !h.deadline.After(now); h = c.holds.Front() {
		c.holds.Remove(h)
		c.fail(h.item, h.deadline, 0, fmt.Sprintf("not settled within %v", c.sub.AckWait))
	}
	for len(c.queue) > 0 && c.queue[0].doomed && c.due(now) {
		c.graves = append(c.graves, heap.Pop(&c.queue).(*item))
	}
}

// arm gives a taken item its deadline: the delivery begins.
func (c *consumer) arm(h *hold, now time.Time) {
	h.deadline = now.Add(c.sub.AckWait)
	c.holds.Insert(h)
}

// has reports whether the item is out on that hold.
func (c *consumer) has(h *hold) bool {
	return h.item.hold == h && c.out[h.item.seq] == h.item
}

// valid returns nil for a hold that can be settled or extended, or else why it
// cannot.
func (c *consumer) valid(h *hold, now time.Time) error {
	c.update(now)
	if !c.holds.Has(h) || !c.has(h) {
		return reactor.ErrLost
	}
	return nil
}

// fail counts a delivery that failed at some time, now or before: the item is
// due again after a delay, or to be buried.
func (c *consumer) fail(it *item, at time.Time, after time.Duration, reason string) uint64 {
	it.reason, it.failed = reason, at
	if c.sub.MaxAttempts > 0 && it.attempt >= c.sub.MaxAttempts {
		return c.condemn(it)
	}
	it.attempt++
	return c.put(it, at.Add(max(after, 0)))
}

// put queues an item until due, and returns the place of the record.
func (c *consumer) put(it *item, due time.Time) uint64 {
	c.turn++
	it.hold, it.due, it.turn, it.data, it.kept = nil, due, c.turn, nil, false
	heap.Push(&c.queue, it)
	return c.note(recordWaiting, it)
}

// postpone queues an item that could not be buried for another try.
func (c *consumer) postpone(it *item, due time.Time) {
	c.turn++
	it.due, it.turn = due, c.turn
	heap.Push(&c.queue, it)
}

// condemn makes an item wait for its burial, and returns the place of the record.
func (c *consumer) condemn(it *item) uint64 {
	it.hold, it.doomed = nil, true
	c.graves = append(c.graves, it)
	return c.note(recordDying, it)
}

// dig takes the graves, for bury.
func (c *consumer) dig() graves {
	g := graves{c.inc, c.graves}
	c.graves = nil
	return g
}

// done ends an item, and returns the place of the record.
func (c *consumer) done(it *item, kind recordKind) uint64 {
	it.hold = nil
	delete(c.out, it.seq)
	return c.note(kind, it)
}

// release puts back what the member s holds, and returns the place of the last
// record.
func (c *consumer) release(s *source, now time.Time) (place uint64) {
	c.update(now)
	for h := c.holds.Front(); h != nil; {
		next := h.After()
		if h.source == s {
			c.holds.Remove(h)
			place = c.put(h.item, now)
		}
		h = next
	}
	c.kick(now)
	return place
}
