package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

var _ messaging.Admin = (*Broker)(nil)

// Subscriptions implements [messaging.Admin].
func (b *Broker) Subscriptions(ctx context.Context) ([]messaging.Status, error) {
	if err := b.refusal(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var all []messaging.Status
	b.expire(now)
	for _, c := range b.consumers {
		all = append(all, c.status(now))
	}
	slices.SortFunc(all, func(x, y messaging.Status) int {
		return cmp.Or(cmp.Compare(x.DeadLettersOf, y.DeadLettersOf), cmp.Compare(x.Name, y.Name))
	})
	return all, nil
}

// status is the state of the subscription.
func (c *consumer) status(now time.Time) messaging.Status {
	c.update(now)
	s := messaging.Status{Subscription: c.sub, InFlight: c.out.count, Members: len(c.members)}
	s.Types = slices.Clone(s.Types)
	older := func(t time.Time) {
		if s.Oldest.IsZero() || t.Before(s.Oldest) {
			s.Oldest = t
		}
	}
	for it := c.out.first; it != nil; it = it.after {
		older(it.entry.stored)
		if it.attempt > 1 {
			s.Redelivered++
		}
	}
	c.log.mu.Lock()
	for seq := max(c.next, c.log.first.Load()); seq < c.log.end.Load(); seq++ {
		if e := c.log.at(seq); e != nil && c.match.Match(e.typ) {
			s.Pending++
			older(e.stored)
		}
	}
	c.log.mu.Unlock()
	if dead := c.broker.dead[c.sub.Name]; dead != nil && c.sub.DeadLettersOf == "" {
		s.DeadLetters = uint64(dead.len())
	}
	return s
}

// Seek implements [messaging.Admin].
func (b *Broker) Seek(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
	return b.change(ctx, sub, func(c *consumer, now time.Time) error {
		if t, ok := to.Time(); ok && t.After(now) {
			return fmt.Errorf("%w: seek to %v: must not be in the future", messaging.ErrInvalid, to)
		}
		c.reset()
		c.next = c.position(to)
		c.forgetAhead()
		return nil
	})
}

// Update implements [messaging.Admin].
func (b *Broker) Update(ctx context.Context, sub messaging.Subscription) error {
	if err := b.refusal(ctx); err != nil {
		return err
	}
	sub, err := sub.Normalize()
	if err != nil {
		return err
	}
	return b.change(ctx, sub, func(c *consumer, now time.Time) error {
		// What lies behind was looked at with the old types.
		c.ready(now)
		sub.Start = c.sub.Start
		c.configure(sub)
		return nil
	})
}

// Delete implements [messaging.Admin].
func (b *Broker) Delete(ctx context.Context, sub messaging.Subscription) (discarded uint64, err error) {
	err = b.change(ctx, sub, func(c *consumer, now time.Time) error {
		s := c.status(now)
		discarded = s.Pending + uint64(s.InFlight)
		c.delete()
		return nil
	})
	return discarded, err
}

// change does something to a consumer that exists.
func (b *Broker) change(ctx context.Context, sub messaging.Subscription, do func(*consumer, time.Time) error) error {
	if err := b.refusal(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.expire(now)
	c := b.consumers[identity{sub.DeadLettersOf, sub.Name}]
	if c == nil {
		return fmt.Errorf("%w: %q", messaging.ErrNotFound, sub.Name)
	}
	c.update(now)
	if err := do(c, now); err != nil {
		return err
	}
	c.kick(now)
	return nil
}

// DeleteDeadLetters implements [messaging.Admin].
func (b *Broker) DeleteDeadLetters(ctx context.Context, name string) (discarded uint64, err error) {
	if err := b.refusal(ctx); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	dead := b.dead[name]
	if dead == nil {
		return 0, fmt.Errorf("%w: %q", messaging.ErrNotFound, name)
	}
	now := time.Now()
	discarded = uint64(dead.len() + len(b.raw[name]))
	for seq := dead.first.Load(); seq < dead.end.Load(); seq++ {
		dead.remove(seq)
	}
	delete(b.raw, name)
	for c := range dead.consumers {
		c.reset()
	}
	if c := b.consumers[identity{name: name}]; c != nil {
		c.kick(now) // what could not be buried for want of room
	}
	return discarded, nil
}

// Undecodable implements [messaging.Admin].
func (b *Broker) Undecodable(ctx context.Context, name string) ([]*messaging.DecodeError, error) {
	if err := b.refusal(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead[name] == nil {
		return nil, fmt.Errorf("%w: %q", messaging.ErrNotFound, name)
	}
	out := make([]*messaging.DecodeError, len(b.raw[name]))
	for i, bad := range b.raw[name] {
		out[i] = cloneRaw(bad)
	}
	return out, nil
}

func cloneRaw(bad *messaging.DecodeError) *messaging.DecodeError {
	c := *bad
	c.Header, c.Body = cloneHeader(bad.Header), slices.Clone(bad.Body)
	return &c
}
