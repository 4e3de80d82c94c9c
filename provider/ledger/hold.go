package ledger

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/internal/local"
	"github.com/catchment-events/catchment/reactor"
)

// A hold is one delivery of an item: what its receiver settles through.
type hold struct {
	consumer           *consumer
	source             *source
	item               *item
	deadline           time.Time
	local.Links[*hold] // in the consumer's holds
}

// Settle implements [reactor.Settler]. A reject returns when the dead letter is
// stored, or cannot be; an ack when it is written down in memory, or with
// ConfirmedAck on the disk; the others when the operating system has it.
func (h *hold) Settle(ctx context.Context, o reactor.Outcome) error {
	c := h.consumer
	b := c.broker
	if !b.gate.enter() {
		return reactor.ErrLost
	}
	defer b.gate.leave(true)
	c.mu.Lock()
	now := time.Now()
	if err := c.valid(h, now); err != nil {
		c.mu.Unlock()
		return err
	}
	it := h.item
	c.holds.Remove(h)
	var place uint64
	switch o.Result {
	case reactor.Acked:
		if c.sub.DeadLettersOf != "" || b.opts.ConfirmedAck {
			c.mu.Unlock()
			return h.confirm()
		}
		c.done(it, recordSettled)
	case reactor.Released:
		place = c.put(it, now)
	case reactor.Rejected:
		it.reason, it.failed = boundReason(o.Reason), now
		place = c.condemn(it)
	case reactor.Retried:
		place = c.fail(it, now, o.After, boundReason(o.Reason))
	}
	graves := c.dig()
	c.kick(now)
	c.mu.Unlock()
	if slices.Contains(c.bury(graves), it) {
		return reactor.ErrLost
	}
	if place > 0 {
		if err := b.journal.write(place); err != nil {
			// It is so, in this process. If that dies before somebody
			// succeeds, the delivery has failed.
			c.trouble(err)
		}
	}
	b.stir()
	return nil
}

// boundReason keeps of a reason what is enough for a dead letter, which makes it
// fit to be read.
func boundReason(s string) string {
	if len(s) > 4*messaging.MaxReason {
		s = strings.Clone(s[:4*messaging.MaxReason])
	}
	return s
}

// trouble leaves an error for the next Receive to report.
func (c *consumer) trouble(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, err)
	c.kick(time.Now())
}

// confirm acks an item that stays out, but with nobody, until that is stored: a
// dead letter is removed, and with ConfirmedAck the disk has the record.
func (h *hold) confirm() (err error) {
	c := h.consumer
	b := c.broker
	kind := recordSettled
	if l, ok := c.log.(*letters); ok {
		kind = recordRemoved
		err = l.remove(h.item.seq)
	}
	if err == nil && b.opts.ConfirmedAck {
		c.mu.Lock()
		var place uint64
		if c.has(h) {
			place = c.note(kind, h.item)
			h.item.acked = true
		}
		c.mu.Unlock()
		err = b.keep(place)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	acked := h.item.acked
	h.item.acked = false
	switch {
	case !c.has(h):
		return reactor.ErrLost // moved meanwhile
	case err == nil && acked:
		h.item.hold = nil
		delete(c.out, h.item.seq)
	case err == nil:
		c.done(h.item, kind)
	case h.source.closed:
		c.put(h.item, now)
	default:
		// It stays with the member, whose deadline has not changed.
		c.note(recordHeld, h.item)
		c.holds.Insert(h)
	}
	c.kick(now)
	b.stir()
	return err
}

// Extend implements [reactor.Settler].
func (h *hold) Extend(ctx context.Context) (time.Time, error) {
	c := h.consumer
	began := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if err := c.valid(h, now); err != nil {
		return time.Time{}, err
	}
	c.holds.Remove(h)
	c.arm(h, began)
	c.kick(now) // an Update may have made AckWait shorter
	return h.deadline, nil
}
