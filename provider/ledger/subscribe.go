package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/catchment-events/catchment/messaging"
)

// Subscribe opens a member. See [messaging.Subscriber] for the contract; the
// source is a member until its Close, or that of the broker. A subscription
// that is new is on the disk when Subscribe returns, and so is the first member
// of one that expires.
func (b *Broker) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	if !b.gate.enter() {
		return nil, messaging.ErrClosed
	}
	defer b.gate.leave(true)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sub, err := sub.Normalize()
	if err != nil {
		return nil, err
	}
	b.admin.Lock()
	defer b.admin.Unlock()
	b.expire(time.Now())
	c := b.find(sub)
	if c == nil {
		if c, err = b.create(sub); err != nil {
			return nil, err
		}
	}
	s := &source{consumer: c, report: report}
	place, err := c.join(s, sub)
	if err != nil {
		return nil, err
	}
	if sub.Expires > 0 && place > 0 {
		// On the disk, or the loss of power would find it left since long ago.
		if err := b.keep(place); err != nil {
			s.close(time.Now())
			return nil, err
		}
	}
	b.writeDown(place)
	return s, nil
}

// join makes s a member, if sub is what the consumer is. It returns the place of
// the record that says so, if it needs one.
func (c *consumer) join(s *source, sub messaging.Subscription) (place uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := sub.Conflict(c.sub); err != nil {
		return 0, err
	}
	c.members[s] = struct{}{}
	if !c.left.IsZero() {
		c.left = time.Time{}
		place = c.note(recordLeft, nil) // or a kill would find it left since then
	}
	return place, nil
}

// find returns the consumer of a subscription, or nil.
func (b *Broker) find(sub messaging.Subscription) *consumer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.consumers[identity{sub.DeadLettersOf, sub.Name}]
}

// lettersOf returns the dead letters of a subscription, or nil.
func (b *Broker) lettersOf(name string) *letters {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.letters[name]
}

// number returns a number that was never given before, and puts that down in
// the batch. b.admin is held.
func (b *Broker) number(batch *pebble.Batch) (uint64, error) {
	b.mu.Lock()
	b.counter++
	n := b.counter
	b.mu.Unlock()
	return n, batch.Set([]byte{keyCounter}, encodeNumber(n), nil)
}

// create stores a new subscription. b.admin is held.
func (b *Broker) create(sub messaging.Subscription) (*consumer, error) {
	batch := b.db.NewBatch()
	defer batch.Close()
	l, dead := log(b.events), (*letters)(nil)
	if sub.DeadLettersOf != "" {
		dead = b.lettersOf(sub.DeadLettersOf)
		if dead == nil {
			return nil, fmt.Errorf("%w: %q, whose dead letters were asked for", messaging.ErrNotFound, sub.DeadLettersOf)
		}
		l = dead
	}
	next, err := position(l, sub.Start)
	if err != nil {
		return nil, err
	}
	inc, err := b.number(batch)
	if err != nil {
		return nil, err
	}
	var own *letters
	if sub.DeadLettersOf == "" && b.lettersOf(sub.Name) == nil {
		id, err := b.number(batch)
		if err != nil {
			return nil, err
		}
		own = newLetters(b, sub.Name, id, 1, 0)
		if err := batch.Set(lettersKey(sub.Name), encodeLetters(id, 1, 0), nil); err != nil {
			return nil, err
		}
	}
	s := &state{next: next} // it has a member at once
	err = errors.Join(
		batch.Set(settingsKey(identity{sub.DeadLettersOf, sub.Name}), encodeSettings(inc, sub), nil),
		batch.Set(stateKey(inc), s.encode(), nil),
	)
	if err == nil {
		err = b.commit(batch, true)
	}
	if err != nil {
		return nil, err
	}
	if own != nil {
		b.mu.Lock()
		b.letters[sub.Name] = own
		b.mu.Unlock()
	}
	return b.adopt(sub, inc, s), nil
}

// adopt makes a consumer of what is stored.
func (b *Broker) adopt(sub messaging.Subscription, inc uint64, s *state) *consumer {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, dead := log(b.events), b.letters[sub.DeadLettersOf]
	if sub.DeadLettersOf != "" {
		l = dead
	}
	c := newConsumer(b, l, sub, inc, s)
	if sub.DeadLettersOf == "" {
		c.letters = b.letters[sub.Name]
	}
	b.consumers[c.id] = c
	if sub.DeadLettersOf != "" {
		dead.mu.Lock()
		dead.consumers[c] = struct{}{}
		dead.mu.Unlock()
	} else {
		b.share()
	}
	return c
}

// share publishes the list of the consumers that read the log. b.mu is held.
func (b *Broker) share() {
	all := make([]*consumer, 0, len(b.consumers))
	for id, c := range b.consumers {
		if id.deadLettersOf == "" {
			all = append(all, c)
		}
	}
	b.all.Store(&all)
}

// expire deletes the consumers whose time is over. Nobody notices one that has
// expired before somebody asks for a consumer. b.admin is held.
func (b *Broker) expire(now time.Time) {
	b.mu.Lock()
	all := maps.Clone(b.consumers)
	b.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		over := c.expired(now)
		c.mu.Unlock()
		if over {
			// If that fails it has expired all the same, and will have when
			// the broker is opened again.
			_ = b.drop(c, false)
		}
	}
}

// drop deletes a consumer. Its dead letters stay, if there are any or somebody
// subscribes to them. b.admin is held.
func (b *Broker) drop(c *consumer, sync bool) error {
	batch := b.db.NewBatch()
	defer batch.Close()
	c.mu.Lock()
	inc := c.inc
	c.mu.Unlock()
	err := errors.Join(
		batch.Delete(settingsKey(c.id), nil),
		batch.Delete(stateKey(inc), nil),
	)
	unused := false
	if c.letters != nil {
		raw, failed := b.countRaw(c.id.name)
		err = errors.Join(err, failed)
		if unused = raw == 0 && c.letters.retire(true); unused {
			err = errors.Join(err, batch.Delete(lettersKey(c.id.name), nil))
		}
	}
	if err == nil {
		err = b.commit(batch, sync)
	}
	if err != nil && sync {
		if unused {
			c.letters.retire(false)
		}
		return err
	}
	b.mu.Lock()
	delete(b.consumers, c.id)
	if unused {
		delete(b.letters, c.id.name)
	}
	b.share()
	b.mu.Unlock()
	if dead, ok := c.log.(*letters); ok {
		dead.mu.Lock()
		delete(dead.consumers, c)
		dead.mu.Unlock()
	}
	c.mu.Lock()
	c.remove()
	c.mu.Unlock()
	return err
}
