package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/internal/local"
	"github.com/catchment-events/catchment/provider/ledger/queue"
	"github.com/catchment-events/catchment/reactor"
)

// A source is one member of a subscription.
type source struct {
	consumer *consumer
	report   messaging.Report

	// Below: under the consumer's mutex.
	closed bool
	place  uint64 // of the last record of its Close; 0: it needed none
}

// Receive implements [messaging.Source].
func (s *source) Receive(ctx context.Context) (*messaging.Delivery, error) {
	c := s.consumer
	var w *waiter
	for {
		inside := c.broker.gate.enter()
		c.mu.Lock()
		woken := w != nil && c.arrive(w)
		now := time.Now()
		err := s.ended(ctx)
		if err == nil && !inside {
			err = messaging.ErrClosed
		}
		if err != nil {
			c.kick(now)
			c.mu.Unlock()
			c.broker.gate.leave(inside)
			return nil, err
		}
		var (
			it    *item
			place uint64
			fill  bool
		)
		if w != nil || !c.line.Starving() {
			it, place = c.take(s, now)
			switch {
			case c.rests(now):
			case it == nil && c.hungry(0):
				c.filling, fill = true, true
			case it != nil && c.hungry(aheadBeside) && c.broker.gate.enter():
				c.filling = true
				go c.fillBeside()
			}
		}
		graves := c.dig()
		reports, told := c.told()
		c.kick(now)
		wait := it == nil && !fill && len(graves.items) == 0 && len(reports) == 0
		if wait {
			if w == nil {
				w = local.NewWaiter(s)
			}
			c.wait(w, woken, now)
		}
		c.mu.Unlock()

		c.bury(graves)
		if fill {
			c.fill(ctx)
		}
		var d *messaging.Delivery
		if it != nil {
			d = s.deliver(it, place)
		}
		c.broker.gate.leave(true)
		for _, err := range reports {
			s.report.Do(ctx, err)
		}
		c.broker.writeDown(told)
		switch {
		case d != nil:
			return d, nil
		case wait:
			select {
			case <-w.Wake:
			case <-ctx.Done():
			}
		default:
			w = nil // out of the list, so there is nothing to undo
		}
	}
}

// ended is why a Receive returns without a delivery. The mutex is held.
func (s *source) ended(ctx context.Context) error {
	switch {
	case s.closed:
		return messaging.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case s.consumer.deleted:
		return messaging.ErrNotFound
	}
	return nil
}

// deliver makes a delivery of an item that the member has taken, once the
// operating system has the record that says so. It returns nil for one that
// cannot be delivered, such as a message that does not decode: that is reported,
// kept aside, and ended.
func (s *source) deliver(it *item, place uint64) *messaging.Delivery {
	c := s.consumer
	h := it.hold
	if err := c.broker.journal.write(place); err != nil {
		c.giveBack(h, err)
		return nil
	}
	data, stored, err := c.entry(it)
	switch {
	case err != nil:
		c.giveBack(h, err)
		return nil
	case data == nil:
		c.gone(h)
		return nil
	}
	raw, annotations, err := c.log.open(data)
	if err != nil {
		c.undecodable(h, &messaging.DecodeError{Body: data, Err: err})
		return nil
	}
	e, bad := decode(raw)
	if bad != nil {
		c.undecodable(h, bad)
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if s.closed || !c.has(h) {
		// Closed, deleted or moved while we decoded: nothing was delivered.
		if c.has(h) {
			c.put(it, now)
		}
		c.kick(now)
		return nil
	}
	if it.stored = stored; !it.kept {
		it.data = nil
	}
	c.arm(h, now)
	c.kick(now)
	return reactor.NewDelivery(e, reactor.Info{
		Attempt:     it.attempt,
		MaxAttempts: c.sub.MaxAttempts,
		Sequence:    it.seq,
		Stored:      stored,
		Annotations: annotations,
	}, h.deadline, h)
}

// giveBack puts back an item that could not be delivered, and says why. A
// message on the disk that is damaged is given up.
func (c *consumer) giveBack(h *hold, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.has(h) {
		var damage *queue.DamageError
		if errors.As(err, &damage) {
			c.done(h.item, recordSettled)
		} else {
			c.put(h.item, now)
			c.rest = now.Add(troubleWait)
		}
	}
	c.reports = append(c.reports, fmt.Errorf("ledger: subscription %q: event %d cannot be handed out: %w", c.sub.Name, h.item.seq, err))
	c.kick(now)
}

// troubleWait is how long a Receive waits after the disk has failed it.
const troubleWait = 100 * time.Millisecond

// gone ends an item whose entry is not there any more: an event that the bounds
// of the log have discarded, or a dead letter that was removed.
func (c *consumer) gone(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.has(h) {
		c.done(h.item, recordSettled)
		if c.sub.DeadLettersOf == "" {
			c.missed++
		}
	}
	c.kick(time.Now())
}

// undecodable keeps aside what is no event, ends the item and reports it.
func (c *consumer) undecodable(h *hold, bad *messaging.DecodeError) {
	bad.Subscription, bad.Sequence = c.sub.Name, h.item.seq
	if err := c.broker.keepRaw(bad); err != nil {
		c.giveBack(h, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.has(h) {
		c.done(h.item, recordSettled)
	}
	c.reports = append(c.reports, bad)
	c.kick(time.Now())
}

// Close implements [messaging.Source].
func (s *source) Close() error {
	b := s.consumer.broker
	inside := b.gate.enter()
	defer b.gate.leave(inside)
	place := s.close(time.Now())
	if place == 0 || !inside {
		return nil // Close of the broker writes it
	}
	return b.journal.write(place)
}

// close ends the member and gives back what it holds. It returns the place of
// the last record of that, also to who comes second: which waits for it, too.
func (s *source) close(now time.Time) (place uint64) {
	c := s.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed {
		return s.place
	}
	s.closed = true
	delete(c.members, s)
	c.line.Member(s)
	c.idle()
	place = c.release(s, now)
	if len(c.members) == 0 {
		c.left = now
		c.setAside()
		if !c.deleted {
			place = c.note(recordLeft, nil)
		}
		c.line.StopAlarm()
	}
	s.place = place
	c.broker.stir()
	return place
}
