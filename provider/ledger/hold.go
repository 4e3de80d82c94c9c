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
	local.Links[*hold]           // in the consumer's holds
	begun              *settling // a settle that went on after its context; for who settles or extends
}

// A settling is a settle that waits for the disk.
type settling struct {
	result reactor.Result
	done   chan struct{}
	err    error // once done
}

// Settle implements [reactor.Settler]. A reject returns when the dead letter is
// stored, or cannot be; an ack when it is written down in memory, or with
// ConfirmedAck on the disk; the others when the operating system has it. When ctx
// ends while it waits for the disk it goes on, and the next call waits for it; one
// that had ended before bounds nothing [ACK-8].
func (h *hold) Settle(ctx context.Context, o reactor.Outcome) error {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	switch settled, err := h.settled(ctx); {
	case err != nil:
		return err
	case settled && h.begun.result == o.Result:
		return nil
	case settled:
		return reactor.ErrSettled
	}
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
			return h.finish(ctx, o.Result, h.confirm)
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
	var own graves // those of others are left to the next Receive
	if it.doomed {
		own = c.dig()
	}
	c.kick(now)
	c.mu.Unlock()
	if len(own.items) == 0 {
		c.write(place)
		return nil
	}
	return h.finish(ctx, o.Result, func() error {
		if slices.Contains(c.bury(own), it) {
			return reactor.ErrLost
		}
		c.write(place)
		return nil
	})
}

// write gives the record of a settle to the operating system, if it needs that.
func (c *consumer) write(place uint64) {
	if place > 0 {
		if err := c.broker.journal.write(place); err != nil {
			// It is so, in this process. If that dies before somebody
			// succeeds, the delivery has failed.
			c.trouble(err)
		}
	}
	c.broker.stir()
}

// finish does what is left of a settle, and waits for it as long as ctx lets it.
func (h *hold) finish(ctx context.Context, result reactor.Result, do func() error) error {
	if ctx.Done() == nil {
		return do()
	}
	s := &settling{result: result, done: make(chan struct{})}
	h.begun = s
	h.consumer.broker.work.Go(func() {
		defer close(s.done)
		s.err = do()
	})
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settled waits for a settle that has begun before, and reports whether it has
// settled: one that failed has not.
func (h *hold) settled(ctx context.Context) (bool, error) {
	if h.begun == nil {
		return false, nil
	}
	select {
	case <-h.begun.done:
		return h.begun.err == nil, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
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
	if settled, err := h.settled(ctx); err != nil {
		return time.Time{}, err
	} else if settled {
		return time.Time{}, reactor.ErrSettled
	}
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
