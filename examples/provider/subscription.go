package provider

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A subscription has an item for each event that it has to deliver, in the
// order of the log. Its methods are called with the broker's mutex held.
type subscription struct {
	messaging.Subscription
	broker *Broker
	types  event.Pattern
	items  []*item
	line   []chan struct{} // of the Receives that wait, the longest first [SUB-5]
	dead   []*entry        // its dead letters, with those that were acked
}

// An item is ready, or out: with a member, or waiting for a retry delay.
type item struct {
	*entry
	failed int       // deliveries of it [RCV-2]
	lease  *lease    // of the member that has it; nil: nobody has
	until  time.Time // when lease or delay run out; in the past: it is ready
	done   bool
}

// wake tells those who wait that there may be something to receive.
func (s *subscription) wake() {
	for _, turn := range s.line {
		select {
		case turn <- struct{}{}:
		default: // is told already
		}
	}
}

func (s *subscription) add(n *entry) {
	if s.types.Match(n.event.Type()) {
		s.items = append(s.items, &item{entry: n})
		s.wake()
	}
}

// next returns the first item that is ready, unless MaxInFlight are out, or
// else nil and when the first lease or delay runs out; zero: there is none.
func (s *subscription) next(now time.Time) (ready *item, again time.Time) {
	for _, i := range s.items {
		if i.lease != nil && !now.Before(i.until) {
			s.settle(i, now, reactor.Outcome{Result: reactor.Retried, Reason: "AckWait ran out"})
		}
	}
	s.items = slices.DeleteFunc(s.items, func(i *item) bool { return i.done || i.removed })
	out := 0
	for _, i := range s.items {
		if now.Before(i.until) {
			out++
			if again.IsZero() || i.until.Before(again) {
				again = i.until
			}
		} else if ready == nil {
			ready = i
		}
	}
	if out >= s.MaxInFlight {
		ready = nil
	}
	return ready, again
}

// settle ends a delivery.
func (s *subscription) settle(i *item, now time.Time, o reactor.Outcome) {
	i.lease, i.until = nil, time.Time{}
	switch o.Result {
	case reactor.Acked:
		i.done = true
		i.removed = s.DeadLettersOf != ""
	case reactor.Retried, reactor.Rejected:
		i.failed++
		i.until = now.Add(o.After)
		i.done = o.Result == reactor.Rejected || i.failed == s.MaxAttempts
		if i.done && s.DeadLettersOf == "" { // what is a dead letter stays it [DLQ-4]
			s.bury(i, now, o.Reason)
		}
	}
	s.wake()
}

// bury puts an event in the dead letters.
func (s *subscription) bury(i *item, now time.Time, reason string) {
	letter := messaging.DeadLetter{
		Subscription: s.Name,
		Reason:       reason,
		Attempts:     i.failed,
		Sequence:     i.sequence,
		Stored:       i.stored,
		Died:         now,
	}
	n := &entry{event: i.event, sequence: uint64(len(s.dead) + 1), stored: now, annotations: letter.Annotations()}
	s.dead = append(s.dead, n)
	s.broker.feed(n, s.Name)
}

// A source is a member of a subscription. It fetches nothing ahead.
type source struct {
	*subscription
	closed bool // under the broker's mutex
}

func (s *source) Receive(ctx context.Context) (*messaging.Delivery, error) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	turn := make(chan struct{}, 1)
	s.line = append(s.line, turn)
	defer func() {
		s.line = slices.DeleteFunc(s.line, func(t chan struct{}) bool { return t == turn })
		s.wake() // another is the first in line now
	}()
	for {
		if err := refuse(ctx, s.closed || s.broker.closed); err != nil {
			return nil, err
		}
		var alarm <-chan time.Time
		if s.line[0] == turn {
			now := time.Now()
			i, again := s.next(now)
			if i != nil {
				return s.deliver(i, now), nil
			}
			if !again.IsZero() {
				alarm = time.After(again.Sub(now))
			}
		}
		s.broker.mu.Unlock()
		select {
		case <-turn:
		case <-alarm:
		case <-ctx.Done():
		}
		s.broker.mu.Lock()
	}
}

func (s *source) deliver(i *item, now time.Time) *messaging.Delivery {
	i.lease, i.until = &lease{s, i}, now.Add(s.AckWait)
	return reactor.NewDelivery(event.Clone(i.event), reactor.Info{
		Attempt:     i.failed + 1,
		MaxAttempts: s.MaxAttempts,
		Sequence:    i.sequence,
		Stored:      i.stored,
		Annotations: maps.Clone(i.annotations),
	}, i.until, i.lease)
}

// Close gives back what the member has, unless its time has run out [CLS-1].
func (s *source) Close() error {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	s.closed = true
	now := time.Now()
	s.next(now) // for the leases that have run out
	for _, i := range s.items {
		if i.lease != nil && i.lease.source == s {
			s.settle(i, now, reactor.Outcome{Result: reactor.Released})
		}
	}
	s.wake()
	return nil
}

// A lease is a member's hold on an item, and settles its delivery. When the
// item has another lease, or none, this one has lost it [ACK-7].
type lease struct {
	source *source
	item   *item
}

func (l *lease) Settle(_ context.Context, o reactor.Outcome) error {
	_, err := l.do(func(now time.Time) { l.source.settle(l.item, now, o) })
	return err
}

func (l *lease) Extend(context.Context) (deadline time.Time, err error) {
	return l.do(func(now time.Time) { l.item.until = now.Add(l.source.AckWait) })
}

// do calls f if the member has the item, and returns until when it has it then.
func (l *lease) do(f func(now time.Time)) (until time.Time, err error) {
	now := time.Now() // when the call began [ACK-5]
	b := l.source.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || l.item.lease != l || !now.Before(l.item.until) {
		return time.Time{}, reactor.ErrLost
	}
	f(now)
	return l.item.until, nil
}
