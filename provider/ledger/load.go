package ledger

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/catchment-events/catchment/messaging"
)

// load reads what is stored of the subscriptions, and brings it up to now.
func (b *Broker) load() error {
	from, err := b.readNumber(keyJournal)
	if err != nil {
		return err
	}
	if b.counter, err = b.readNumber(keyCounter); err != nil {
		return err
	}
	subs, states, err := b.loadStates()
	if err != nil {
		return err
	}
	removed := make(map[uint64][]uint64) // dead letters that were acked
	err = replay(b.fs, b.dir, from, func(r record) {
		s := states[r.inc]
		if s == nil {
			return // deleted, or moved
		}
		s.apply(r)
		if r.kind == recordRemoved {
			removed[r.inc] = append(removed[r.inc], r.seq)
		}
	})
	if err != nil {
		return err
	}
	buried, err := b.buried()
	if err != nil {
		return err
	}
	if err := b.loadLetters(); err != nil {
		return err
	}
	now := time.Now()
	for inc, s := range states {
		s.bury(buried[inc])
		if l := b.letters[subs[inc].DeadLettersOf]; l != nil {
			s.cut(l.end())
		} else {
			s.cut(b.events.end())
		}
		s.recover(now)
		if of := subs[inc].DeadLettersOf; of != "" && b.letters[of] == nil {
			return fmt.Errorf("the dead letters of %q are missing, to which %q subscribes", of, subs[inc].Name)
		} else if of == "" && b.letters[subs[inc].Name] == nil {
			return fmt.Errorf("the row for the dead letters of subscription %q is missing", subs[inc].Name)
		}
		c := b.adopt(subs[inc], inc, s)
		c.restore(s)
		if l, ok := c.log.(*letters); ok {
			for _, seq := range removed[inc] {
				if err := l.remove(seq); err != nil {
					return err
				}
			}
		}
	}
	return b.begin(from, states, buried)
}

// begin stores the states, and starts a journal that builds on them.
func (b *Broker) begin(from uint64, states map[uint64]*state, buried map[uint64][]uint64) error {
	numbers, err := journals(b.fs, b.dir)
	if err != nil {
		return err
	}
	number := from + 1
	if len(numbers) > 0 {
		number = max(number, numbers[len(numbers)-1]+1)
	}
	if b.journal, err = openJournal(b.fs, b.dir, number, b.opts.journalBytes*5/4); err != nil {
		return err
	}
	batch := b.db.NewBatch()
	defer batch.Close()
	err = batch.Set([]byte{keyJournal}, encodeNumber(number), nil)
	for inc, s := range states {
		err = errors.Join(err, batch.Set(stateKey(inc), s.encode(), nil))
	}
	for inc, seqs := range buried {
		for _, seq := range seqs {
			if s := states[inc]; s == nil || !s.dead[seq] {
				err = errors.Join(err, batch.Delete(buriedKey(inc, seq), nil))
			}
		}
	}
	if err == nil {
		err = b.apply(batch, true) // as in checkpoint
	}
	if err != nil {
		return err
	}
	return removeJournals(b.fs, b.dir, number)
}

// bury notes what was buried, whether or not the journal has come so far.
func (s *state) bury(seqs []uint64) {
	for _, seq := range seqs {
		delete(s.out, seq)
		if seq >= s.next {
			if s.dead == nil {
				s.dead = make(map[uint64]bool)
			}
			s.dead[seq] = true
		}
	}
}

// cut forgets what the log has lost, which a broker that does not sync may.
func (s *state) cut(end uint64) {
	if s.looked < end {
		return
	}
	s.next, s.looked = end, end-1
	maps.DeleteFunc(s.out, func(seq uint64, _ itemState) bool { return seq >= end })
}

// recover makes of a state that a process left behind one that can be gone on
// with: what was with a member has failed.
func (s *state) recover(now time.Time) {
	for seq, it := range s.out {
		if it.held {
			it.held, it.due, it.failed, it.reason = false, now, now, reasonDied
			it.attempt++
			s.out[seq] = it
		}
	}
	if s.left.IsZero() {
		s.left = now
	}
}

// reasonDied is why a delivery failed whose member died with the broker.
const reasonDied = "the process ended before it was settled"

// restore puts the items of a state out.
func (c *consumer) restore(s *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed, c.dead = s.missed, maps.Clone(s.dead)
	if l, ok := c.log.(*events); ok && s.next < l.first() {
		// The loss of power has taken the record of what was discarded.
		if gone := l.first() - s.next - within(s.dead, s.next, l.first()); c.all {
			c.missed += gone
		} else if gone > 0 {
			c.reports = append(c.reports, &messaging.DiscardedError{Subscription: c.sub.Name})
		}
		c.move(l.first())
	}
	for seq, o := range s.out {
		it := &item{seq: seq, attempt: o.attempt, reason: o.reason, failed: o.failed, due: o.due}
		c.out[seq] = it
		switch {
		case o.dying:
			it.doomed = true
			c.graves = append(c.graves, it)
		case c.sub.MaxAttempts > 0 && o.attempt > c.sub.MaxAttempts:
			it.attempt--
			it.doomed = true
			c.graves = append(c.graves, it)
		default:
			it.turn = seq
			c.queue = append(c.queue, it)
		}
		c.turn = max(c.turn, seq)
	}
	heap.Init(&c.queue)
}

// within counts the sequences from one on to another.
func within(seqs map[uint64]bool, from, to uint64) (n uint64) {
	for seq := range seqs {
		if seq >= from && seq < to {
			n++
		}
	}
	return n
}

func (b *Broker) loadStates() (map[uint64]messaging.Subscription, map[uint64]*state, error) {
	subs, states := make(map[uint64]messaging.Subscription), make(map[uint64]*state)
	err := b.each(keySettings, func(_, v []byte) error {
		inc, sub, err := parseSettings(v)
		if err != nil {
			return err
		}
		row, closer, err := b.db.Get(stateKey(inc))
		if err != nil {
			return fmt.Errorf("the position of subscription %q: %w", sub.Name, err)
		}
		defer closer.Close()
		s, err := parseState(row)
		if err != nil {
			return fmt.Errorf("the position of subscription %q: %w", sub.Name, err)
		}
		subs[inc], states[inc] = sub, s
		return nil
	})
	return subs, states, err
}

func (b *Broker) loadLetters() error {
	return b.each(keyLetters, func(k, v []byte) error {
		id, next, count, err := parseLetters(v)
		if err != nil {
			return err
		}
		name := string(k[1:])
		b.letters[name] = newLetters(b, name, id, next, count)
		return nil
	})
}

// each calls do for the rows of one kind.
func (b *Broker) each(kind byte, do func(k, v []byte) error) error {
	return b.scan([]byte{kind}, []byte{kind + 1}, do)
}

// scan calls do for the rows between two keys, without the second. What do gets is
// valid until it returns.
func (b *Broker) scan(from, to []byte, do func(k, v []byte) error) error {
	it, err := b.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := do(it.Key(), v); err != nil {
			return err
		}
	}
	return it.Error()
}

func encodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (b *Broker) readNumber(kind byte) (uint64, error) {
	v, closer, err := b.db.Get([]byte{kind})
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	if len(v) != 8 {
		return 0, fmt.Errorf("the row %q has %d bytes: must be 8", kind, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}
