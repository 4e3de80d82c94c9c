package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger/queue"
	"github.com/catchment-events/catchment/reactor"
)

// bury moves items to the dead letters. Of a dead letter's own subscription it
// ends them, and leaves the dead letters where they are [DLQ-4]. What cannot be
// buried stays out, queued for another try [DLQ-3]; it returns the items that are
// neither buried nor out, for the subscription was moved or deleted meanwhile.
func (c *consumer) bury(g graves) (lost []*item) {
	b := c.broker
	if len(g.items) == 0 {
		return nil
	}
	if c.letters == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, it := range g.items {
			if c.out[it.seq] == it {
				c.done(it, recordSettled)
			}
		}
		c.kick(time.Now())
		return nil
	}
	burials := make([]*burial, 0, len(g.items))
	for _, it := range g.items {
		d := &burial{item: it, inc: g.inc, letter: messaging.DeadLetter{
			Subscription: c.id.name,
			Reason:       it.reason,
			Attempts:     it.attempt,
			Sequence:     it.seq,
			Died:         it.failed,
		}}
		damage := (*queue.DamageError)(nil)
		d.data, d.letter.Stored, d.err = c.entry(it)
		if d.gone = errors.As(d.err, &damage) || d.err == nil && d.data == nil; d.gone {
			d.err = nil
		}
		burials = append(burials, d)
	}
	c.letters.bury(burials)

	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, d := range burials {
		it := d.item
		switch {
		case c.out[it.seq] != it:
			if d.err != nil {
				lost = append(lost, it)
			}
		case d.gone:
			c.done(it, recordSettled)
			c.missed++
		case d.err != nil:
			it.tries++
			c.reports = append(c.reports, fmt.Errorf("ledger: subscription %q: event %d cannot join the dead letters, and is kept: %w", c.sub.Name, it.seq, d.err))
			c.postpone(it, now.Add(buryBackoff(it.tries)))
		default:
			c.done(it, recordSettled)
		}
	}
	b.stir()
	c.kick(now)
	return lost
}

// graves are items to bury, and the incarnation of which they were out.
type graves struct {
	inc   uint64
	items []*item
}

var buryBackoff = reactor.Exponential(100*time.Millisecond, 10*time.Second)

// A burial is an event that is to become a dead letter.
type burial struct {
	item   *item
	inc    uint64 // of the subscription
	letter messaging.DeadLetter
	data   []byte // the event
	gone   bool   // the event is not there any more
	err    error  // why it did not
}

// errNoRoom is why an event cannot join the dead letters.
var errNoRoom = errors.New("ledger: the dead letters are at their bound")
