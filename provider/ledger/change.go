package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// A change of the dead letters is a burial, or the removal of a letter, or of
// all.
type change struct {
	burial *burial
	remove uint64
	all    bool
	count  int // of letters that it removed
	err    error
	done   chan struct{}
}

// bury stores letters, all that there is room for, and leaves it with each why
// not. It passes over what carries an error already.
func (l *letters) bury(burials []*burial) {
	var changes []*change
	for _, b := range burials {
		if b.err == nil && !b.gone {
			changes = append(changes, &change{burial: b})
		}
	}
	l.change(changes)
	for _, c := range changes {
		c.burial.err = c.err
	}
}

// remove takes a letter out, if it is there.
func (l *letters) remove(seq uint64) error {
	c := &change{remove: seq}
	l.change([]*change{c})
	return c.err
}

// clear takes all letters out, and what did not decode, and returns how many
// there were.
func (l *letters) clear() (int, error) {
	c := &change{all: true}
	l.change([]*change{c})
	return c.count, c.err
}

// change makes changes, or waits for who does.
func (l *letters) change(changes []*change) {
	if len(changes) == 0 {
		return
	}
	last := changes[len(changes)-1]
	last.done = make(chan struct{})
	l.mu.Lock()
	if l.retired {
		l.mu.Unlock()
		for _, c := range changes {
			c.err = fmt.Errorf("%w: %q", messaging.ErrNotFound, l.name)
		}
		return
	}
	l.changes = append(l.changes, changes...)
	if l.changing {
		l.mu.Unlock()
		<-last.done
		return
	}
	l.changing = true
	for len(l.changes) > 0 {
		all := l.changes
		l.changes = nil
		count := l.count
		l.mu.Unlock()
		gone, next, count, err := l.commit(all, count)
		l.mu.Lock()
		if err == nil {
			l.count = count
			if len(gone) > 0 {
				l.removals++
			}
		}
		readers := make([]*consumer, 0, len(l.consumers))
		for c := range l.consumers {
			readers = append(readers, c)
		}
		l.mu.Unlock()
		if err == nil {
			for _, c := range readers {
				c.forget(gone)
			}
			if next > l.next.Load() {
				l.next.Store(next)
				l.grown()
			}
		}
		for _, c := range all {
			if c.err == nil {
				c.err = err
			}
			if c.done != nil {
				close(c.done)
			}
		}
		l.mu.Lock()
	}
	l.changing = false
	l.mu.Unlock()
}

// commit stores changes, and returns the letters that are gone, the sequence of
// the next, and how many there are.
func (l *letters) commit(all []*change, count int) (gone []uint64, next uint64, after int, err error) {
	b := l.broker
	batch := b.db.NewBatch()
	defer batch.Close()
	next = l.next.Load()
	sync := b.opts.ConfirmedAck
	now := time.Now()
	for _, c := range all {
		switch {
		case c.all:
			sync = true
			es, err := l.list(gone)
			if err != nil {
				c.err = err
				continue
			}
			raw, err := b.countRaw(l.name)
			if err != nil {
				c.err = err
				continue
			}
			c.count = count + raw
			gone = append(gone, es...)
			if err := errors.Join(
				batch.DeleteRange(letterKey(l.id, 0), letterKey(l.id, next), nil),
				batch.DeleteRange(rawKey(l.name, 0), rawKey(l.name, 1<<64-1), nil),
			); err != nil {
				return nil, 0, 0, err
			}
			count = 0 // those that this commit has stored before go, too
		case c.burial == nil:
			if slices.Contains(gone, c.remove) {
				continue
			}
			_, ok, err := at(l, c.remove)
			if err != nil {
				c.err = err
				continue
			}
			if ok {
				gone = append(gone, c.remove)
				count--
				if err := batch.Delete(letterKey(l.id, c.remove), nil); err != nil {
					return nil, 0, 0, err
				}
			}
		case count >= b.opts.MaxDeadLetters:
			c.err = errNoRoom
		default:
			sync = true
			d := c.burial
			if err := errors.Join(
				batch.Set(letterKey(l.id, next), appendLetter(nil, now, d.letter, d.data), nil),
				batch.Set(buriedKey(d.inc, d.item.seq), nil, nil),
			); err != nil {
				return nil, 0, 0, err
			}
			next++
			count++
		}
	}
	if batch.Empty() {
		return gone, next, count, nil
	}
	if err := batch.Set(lettersKey(l.name), encodeLetters(l.id, next, count), nil); err != nil {
		return nil, 0, 0, err
	}
	return gone, next, count, b.commit(batch, sync)
}

// list returns the sequences of the letters that are there, without those gone.
func (l *letters) list(gone []uint64) ([]uint64, error) {
	it, err := l.iter(0)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var seqs []uint64
	for it.First(); it.Valid(); it.Next() {
		if seq := binary.BigEndian.Uint64(it.Key()[9:]); !slices.Contains(gone, seq) {
			seqs = append(seqs, seq)
		}
	}
	return seqs, it.Error()
}
