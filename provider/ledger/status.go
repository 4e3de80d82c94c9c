package ledger

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// status is the state of the subscription.
func (c *consumer) status(ctx context.Context, now time.Time) (messaging.Status, error) {
	c.catchUp(now)
	c.mu.Lock()
	s := messaging.Status{Subscription: c.sub, InFlight: len(c.out), Members: len(c.members)}
	s.Types = slices.Clone(s.Types)
	older := func(t time.Time) {
		if s.Oldest.IsZero() || t.Before(s.Oldest) {
			s.Oldest = t
		}
	}
	var unknown []uint64 // out, and not read since the broker was opened
	for seq, it := range c.out {
		if it.stored.IsZero() {
			unknown = append(unknown, seq)
		} else {
			older(it.stored)
		}
		if it.attempt > 1 {
			s.Redelivered++
		}
	}
	s.Pending = uint64(len(c.ahead))
	if len(c.ahead) > 0 {
		older(c.ahead[0].Stored)
	}
	at, match, all, dead := c.scan, c.match, c.all, maps.Clone(c.dead)
	c.mu.Unlock()

	if len(unknown) > 0 {
		e, ok, err := first(c.log, slices.Min(unknown))
		if err != nil {
			return s, err
		}
		if ok {
			older(e.Stored)
		}
	}
	end := c.log.end()
	at = max(at, c.log.first())
	if l, ok := c.log.(*events); ok && all && at < end {
		s.Pending += end - at - within(dead, at, end)
		for dead[at] {
			at++
		}
		if at < end {
			e, ok, err := first(l, at)
			if err != nil {
				return s, err
			}
			if ok {
				older(e.Stored)
			}
		}
		at = end
	}
	for at < end {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		es, next, err := readOver(c.log, at, 4*aheadEntries, aheadBytes)
		if err != nil {
			return s, err
		}
		for _, e := range es {
			typ, err := c.log.typ(e.Data)
			if e.Seq < end && !dead[e.Seq] && (err != nil || match.Match(string(typ))) {
				s.Pending++
				older(e.Stored)
			}
		}
		if next <= at {
			break
		}
		at = next
	}
	if l := c.broker.lettersOf(c.sub.Name); l != nil && c.sub.DeadLettersOf == "" {
		s.DeadLetters = uint64(l.len())
	}
	return s, nil
}

// catchUp brings the state up to now, and buries what has failed for good by then.
func (c *consumer) catchUp(now time.Time) {
	c.mu.Lock()
	c.update(now)
	graves := c.dig()
	c.mu.Unlock()
	c.bury(graves)
}

// first reads the first entry from a sequence on; false: there is none.
func first(l log, from uint64) (queue.Entry, bool, error) {
	es, _, err := readOver(l, from, 1, 1)
	if err != nil || len(es) == 0 {
		return queue.Entry{}, false, err
	}
	return es[0], true, nil
}

// entry returns the data of an item, and when it was stored: nil if it is not there any
// more.
func (c *consumer) entry(it *item) (data []byte, stored time.Time, err error) {
	known := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		data, stored = it.data, it.stored
		return data != nil
	}
	if known() {
		return data, stored, nil
	}
	e, ok, err := at(c.log, it.seq)
	if err == nil && !ok && known() { // discarded meanwhile, and kept
		return data, stored, nil
	}
	return e.Data, e.Stored, err
}

// readOver reads as a log does, but over what is damaged.
func readOver(l log, from uint64, entries, bytes int) ([]queue.Entry, uint64, error) {
	for {
		es, next, err := l.read(from, entries, bytes)
		damage := (*queue.DamageError)(nil)
		if !errors.As(err, &damage) {
			return es, next, err
		}
		from = max(damage.To, from+1)
	}
}
