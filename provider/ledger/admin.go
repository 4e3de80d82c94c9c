package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

var _ messaging.Admin = (*Broker)(nil)

// Subscriptions implements [messaging.Admin]. To count what is pending for a
// subscription with Types, it looks through the log.
func (b *Broker) Subscriptions(ctx context.Context) ([]messaging.Status, error) {
	leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	now := time.Now()
	b.admin.Lock()
	b.expire(now)
	b.mu.Lock()
	consumers := maps.Clone(b.consumers)
	b.mu.Unlock()
	b.admin.Unlock()
	var all []messaging.Status
	for _, c := range consumers {
		s, err := c.status(ctx, now)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y messaging.Status) int {
		return cmp.Or(cmp.Compare(x.DeadLettersOf, y.DeadLettersOf), cmp.Compare(x.Name, y.Name))
	})
	return all, nil
}

// enter lets a call in, or says why not, before its arguments are looked at.
func (b *Broker) enter(ctx context.Context) (leave func(), err error) {
	if !b.gate.enter() {
		return nil, messaging.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		b.gate.leave(true)
		return nil, err
	}
	return func() { b.gate.leave(true) }, nil
}

// Seek implements [messaging.Admin]. It is on the disk when it returns.
func (b *Broker) Seek(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
	return b.change(ctx, sub, func(c *consumer) error {
		if t, ok := to.Time(); ok && t.After(time.Now()) {
			return fmt.Errorf("%w: seek to %v: must not be in the future", messaging.ErrInvalid, to)
		}
		next, err := position(c.log, to)
		if err != nil {
			return err
		}
		return b.restart(c, next)
	})
}

// restart gives a consumer a new incarnation, at some position. What was
// written of the old one says nothing any more. b.admin is held.
func (b *Broker) restart(c *consumer, next uint64) error {
	batch := b.db.NewBatch()
	defer batch.Close()
	inc, err := b.number(batch)
	if err != nil {
		return err
	}
	c.mu.Lock()
	old, sub := c.inc, c.sub
	s := state{next: next}
	if len(c.members) == 0 {
		s.left = c.left
	}
	c.mu.Unlock()
	err = errors.Join(
		batch.Delete(stateKey(old), nil),
		batch.Set(stateKey(inc), s.encode(), nil),
		batch.Set(settingsKey(c.id), encodeSettings(inc, sub), nil),
	)
	if err == nil {
		err = b.commit(batch, true)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset(inc, next)
	if len(c.members) == 0 {
		c.note(recordLeft, nil) // it may have been since
	}
	c.kick(time.Now())
	return nil
}

// Update implements [messaging.Admin]. It is on the disk when it returns.
func (b *Broker) Update(ctx context.Context, sub messaging.Subscription) error {
	leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	sub, err = sub.Normalize()
	if err != nil {
		return err
	}
	return b.change(ctx, sub, func(c *consumer) error {
		// What lies behind was looked at with the old types.
		c.lookAhead(ctx)
		batch := b.db.NewBatch()
		defer batch.Close()
		c.mu.Lock()
		sub.Start = c.sub.Start
		inc, s := c.inc, c.state()
		c.mu.Unlock()
		_, position, _ := b.journal.status()
		err := errors.Join(
			b.keep(position), // before a row tells of it, as in checkpoint
			batch.Set(settingsKey(c.id), encodeSettings(inc, sub), nil),
			batch.Set(stateKey(inc), s.encode(), nil),
		)
		if err == nil {
			err = b.commit(batch, true)
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.configure(sub)
		c.setAside() // it was selected by the old types
		c.kick(time.Now())
		return nil
	})
}

// lookAhead passes over what is not for the subscription.
func (c *consumer) lookAhead(ctx context.Context) {
	c.mu.Lock()
	if !c.hungry(0) || c.all {
		c.mu.Unlock()
		return
	}
	c.filling = true
	c.mu.Unlock()
	c.fill(ctx)
}

// Delete implements [messaging.Admin]. It is on the disk when it returns.
func (b *Broker) Delete(ctx context.Context, sub messaging.Subscription) (discarded uint64, err error) {
	err = b.change(ctx, sub, func(c *consumer) error {
		s, err := c.status(ctx, time.Now())
		if err != nil {
			return err
		}
		discarded = s.Pending + uint64(s.InFlight)
		return b.drop(c, true)
	})
	return discarded, err
}

// change does something to a consumer that exists, with b.admin held.
func (b *Broker) change(ctx context.Context, sub messaging.Subscription, do func(*consumer) error) error {
	leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	b.admin.Lock()
	defer b.admin.Unlock()
	now := time.Now()
	b.expire(now)
	c := b.find(sub)
	if c == nil {
		return fmt.Errorf("%w: %q", messaging.ErrNotFound, sub.Name)
	}
	c.catchUp(now) // what has failed by now has done so where it was, as it was
	return do(c)
}

// DeleteDeadLetters implements [messaging.Admin]. It is on the disk when it
// returns.
func (b *Broker) DeleteDeadLetters(ctx context.Context, name string) (discarded uint64, err error) {
	leave, err := b.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	b.admin.Lock()
	defer b.admin.Unlock()
	dead := b.lettersOf(name)
	if dead == nil {
		return 0, fmt.Errorf("%w: %q", messaging.ErrNotFound, name)
	}
	n, err := dead.clear()
	if err != nil {
		return 0, err
	}
	dead.mu.Lock()
	readers := maps.Clone(dead.consumers)
	dead.mu.Unlock()
	for c := range readers {
		c.mu.Lock()
		next := c.position()
		c.mu.Unlock()
		if err := b.restart(c, next); err != nil {
			return uint64(n), err
		}
	}
	if c := b.find(messaging.Subscription{Name: name}); c != nil {
		c.mu.Lock()
		c.kick(time.Now()) // what could not be buried for want of room
		c.mu.Unlock()
	}
	return uint64(n), nil
}

// Undecodable implements [messaging.Admin].
func (b *Broker) Undecodable(ctx context.Context, name string) ([]*messaging.DecodeError, error) {
	leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if b.lettersOf(name) == nil {
		return nil, fmt.Errorf("%w: %q", messaging.ErrNotFound, name)
	}
	var out []*messaging.DecodeError
	err = b.eachRaw(name, func(v []byte) error {
		bad, err := parseRaw(name, v)
		out = append(out, bad)
		return err
	})
	return out, err
}
