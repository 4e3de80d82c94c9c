package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/internal/local"
	"github.com/catchment-events/catchment/reactor"
)

// A source is one member of a subscription.
type source struct {
	consumer *consumer
	report   messaging.Report

	// Below: under the broker's mutex.
	closed bool
	spare  *waiter // that no Receive uses
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
			s.spare = w
			c.kick(now)
			mu.Unlock()
			return nil, err
		}
		var h *hold
		if w != nil || !c.line.Starving() {
			h = c.take(s, now)
		}
		vanished := h != nil && c.broker.hostile.vanishes(c, h.item)
		if vanished {
			h.source = nil // whoever it was, s does not give it back
		}
		// A report may take its time, which is not that of the delivery.
		late := h != nil && !vanished && len(c.reports) > 0
		if h != nil && !late {
			c.arm(h, now)
		}
		c.kick(now)
		reports := c.reports
		c.reports = nil
		wait := h == nil && len(reports) == 0
		switch {
		case !wait && w != nil:
			// Out of the list, so there is nothing to undo.
			s.spare, w = w, nil
		case wait && w == nil:
			w = s.waiter()
		}
		if wait {
			c.wait(w, woken, now)
		}
		var info reactor.Info
		var deadline time.Time
		if h != nil {
			info, deadline = h.info(), h.deadline
		}
		mu.Unlock()

		for _, err := range reports {
			s.report.Do(ctx, err)
		}
		switch {
		case wait:
			select {
			case <-w.Wake:
			case <-ctx.Done():
			}
		case late && !s.begin(h, &info, &deadline):
			// Closed, deleted or moved meanwhile: nothing was delivered.
		case h != nil && !vanished:
			e, err := h.item.entry.decode()
			if err == nil {
				return reactor.NewDelivery(e, info, deadline, h), nil
			}
			s.undecodable(ctx, h, err)
		}
	}
}

type waiter = local.Waiter[*source]

// waiter returns a waiter of the member's. The mutex is held.
func (s *source) waiter() *waiter {
	w := s.spare
	if s.spare = nil; w == nil {
		w = local.NewWaiter(s)
	}
	return w
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

// begin begins the delivery of an item that was taken before, if that may still be.
func (s *source) begin(h *hold, info *reactor.Info, deadline *time.Time) bool {
	c, mu := s.consumer, &s.consumer.broker.mu
	mu.Lock()
	defer mu.Unlock()
	now := time.Now()
	ok := h.holds() && !s.closed
	if ok {
		c.arm(h, now)
		*info, *deadline = h.info(), h.deadline
	} else if h.holds() {
		c.put(h.item, now)
	}
	c.kick(now)
	return ok
}

// undecodable ends a hold on a message that does not decode, keeps the message
// aside, and reports it.
func (s *source) undecodable(ctx context.Context, h *hold, err error) {
	c, mu := s.consumer, &s.consumer.broker.mu
	e := &h.item.entry
	bad := &messaging.DecodeError{
		Subscription: c.sub.Name,
		Sequence:     e.seq,
		Header:       cloneHeader(e.raw.header),
		Body:         slices.Clone(e.raw.body),
		Err:          err,
	}
	mu.Lock()
	now := time.Now()
	c.update(now)
	held := h.holds()
	if held {
		c.holds.Remove(h)
		c.done(h.item)
		c.broker.raw[c.sub.Name] = append(c.broker.raw[c.sub.Name], cloneRaw(bad)) // the report may change its own
	}
	c.kick(now)
	mu.Unlock()
	if held { // not closed, deleted or moved meanwhile
		s.report.Do(ctx, bad)
	}
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
	c.line.Member(s)
	c.idle()
	c.release(s, now)
	if len(c.members) == 0 {
		c.line.StopAlarm()
	}
}

// A hold is one delivery of an item: what its receiver settles through.
type hold struct {
	consumer           *consumer
	source             *source
	item               *item
	deadline           time.Time
	local.Links[*hold]       // in the consumer's holds
	refused            uint8 // settles and extends that a hostile broker failed
}

// holds reports whether the item is still held by h.
func (h *hold) holds() bool { return h.item.hold == h && h.item.out }

// info is what the delivery tells about itself.
func (h *hold) info() reactor.Info {
	e := &h.item.entry
	return reactor.Info{
		Attempt:     h.item.attempt,
		MaxAttempts: h.consumer.sub.MaxAttempts,
		Sequence:    e.seq,
		Stored:      e.stored,
		Annotations: e.annotations,
	}
}

// Settle implements [reactor.Settler].
func (h *hold) Settle(ctx context.Context, o reactor.Outcome) error {
	c, mu := h.consumer, &h.consumer.broker.mu
	late := c.broker.hostile.settle(ctx)
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
	now := time.Now()
	if err := cmp.Or(c.valid(h, now), late); err != nil {
		return time.Time{}, err
	}
	deadline := c.extend(h, began)
	c.kick(now) // an Update may have made AckWait shorter
	return deadline, nil
}
