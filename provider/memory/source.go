package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A source is one member of a subscription.
type source struct {
	consumer *consumer
	report   messaging.Report
	closed   bool // under the broker's mutex
}

// Receive implements [messaging.Source].
func (s *source) Receive(ctx context.Context) (*messaging.Delivery, error) {
	c, mu := s.consumer, &s.consumer.broker.mu
	var w *waiter
	for {
		_ = c.broker.hostile.pause(ctx) // ended says so, too
		mu.Lock()
		woken := w != nil && c.arrive(w)
		now := time.Now()
		if err := s.ended(ctx); err != nil {
			c.kick(now)
			mu.Unlock()
			return nil, err
		}
		var it *item
		if w != nil || c.starving == 0 {
			it = c.take(s, now)
		}
		c.kick(now)
		reports := c.reports
		c.reports = nil
		wait := it == nil && len(reports) == 0
		if wait {
			if w == nil {
				w = &waiter{source: s, wake: make(chan struct{}, 1)}
			}
			// A Receive that was woken and comes too late goes first next time,
			// or one who acks and receives again at once could keep it waiting
			// for ever [SUB-5].
			c.wait(w, woken, now)
		}
		mu.Unlock()

		for _, err := range reports {
			s.report.Do(ctx, err)
		}
		if it != nil {
			if d, err := s.deliver(ctx, it); d != nil || err != nil {
				return d, err
			}
		}
		if !wait {
			// Out of the list, so there is nothing to undo.
			w = nil
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
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

// deliver makes a delivery of an item that the member has taken. It returns
// neither a delivery nor an error for a message that does not decode: that is
// reported, kept aside, and ended.
func (s *source) deliver(ctx context.Context, it *item) (*messaging.Delivery, error) {
	c, mu := s.consumer, &s.consumer.broker.mu
	h := it.hold
	e, err := event.NATS.Decode(it.entry.header, slices.Clone(it.entry.body))

	mu.Lock()
	now := time.Now()
	if s.closed || it.hold != h || c.out[it.entry.seq] != it {
		// Closed, deleted or moved while we decoded: nothing was delivered.
		if it.hold == h && c.out[it.entry.seq] == it {
			c.put(it, now)
		}
		c.kick(now)
		closed := s.closed
		mu.Unlock()
		if closed {
			return nil, messaging.ErrClosed
		}
		return nil, nil
	}
	if err != nil {
		bad := &messaging.DecodeError{
			Subscription: c.sub.Name,
			Sequence:     it.entry.seq,
			Header:       cloneHeader(it.entry.header),
			Body:         slices.Clone(it.entry.body),
			Err:          err,
		}
		c.done(it)
		c.broker.raw[c.sub.Name] = append(c.broker.raw[c.sub.Name], bad)
		c.kick(now)
		mu.Unlock()
		s.report.Do(ctx, bad)
		return nil, nil
	}
	if c.broker.hostile.vanishes(c, it) {
		h.source = nil // whoever it was, s does not give it back
		c.arm(h, now)
		c.kick(now)
		mu.Unlock()
		return nil, nil
	}
	c.arm(h, now)
	c.kick(now)
	info := reactor.Info{
		Attempt:     it.attempt,
		MaxAttempts: c.sub.MaxAttempts,
		Sequence:    it.entry.seq,
		Stored:      it.entry.stored,
		Annotations: it.entry.annotations,
	}
	deadline := h.deadline
	mu.Unlock()
	return reactor.NewDelivery(e, info, deadline, h), nil
}

// Close implements [messaging.Source].
func (s *source) Close() error {
	mu := &s.consumer.broker.mu
	mu.Lock()
	defer mu.Unlock()
	s.close(time.Now())
	return nil
}

// close ends the member and gives back what it holds. The mutex is held.
func (s *source) close(now time.Time) {
	if s.closed {
		return
	}
	c := s.consumer
	s.closed = true
	delete(c.members, s)
	c.left = now
	for _, w := range c.waiters.of(s) {
		c.waiters.remove(w)
		c.signal(w)
	}
	c.idle()
	c.release(s, now)
	if len(c.members) == 0 && c.timer != nil {
		c.timer.Stop()
		c.alarm = time.Time{}
	}
}

// A hold is one delivery of an item: what its receiver settles through.
type hold struct {
	consumer      *consumer
	source        *source
	item          *item
	deadline      time.Time
	before, after *hold // in the consumer's holds
	listed        bool
	refused       uint8 // settles and extends that a hostile broker failed
}

// Settle implements [reactor.Settler].
func (h *hold) Settle(ctx context.Context, o reactor.Outcome) error {
	c, mu := h.consumer, &h.consumer.broker.mu
	late := c.broker.hostile.pause(ctx)
	mu.Lock()
	defer mu.Unlock()
	now := time.Now()
	if err := cmp.Or(c.valid(h, now), late); err != nil {
		return err
	}
	c.settle(h, o, now)
	return nil
}

// Extend implements [reactor.Settler].
func (h *hold) Extend(ctx context.Context) (time.Time, error) {
	c, mu := h.consumer, &h.consumer.broker.mu
	began := time.Now()
	late := c.broker.hostile.pause(ctx)
	mu.Lock()
	defer mu.Unlock()
	if err := cmp.Or(c.valid(h, time.Now()), late); err != nil {
		return time.Time{}, err
	}
	return c.extend(h, began), nil
}
