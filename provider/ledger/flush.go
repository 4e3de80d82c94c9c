package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// journalBytes is how long a journal grows before the next begins.
const journalBytes = 16 << 20

// stir tells the flusher that something waits to be synced.
func (b *Broker) stir() {
	if b.dirty.Load() || b.dirty.Swap(true) {
		return
	}
	select {
	case b.stirs <- struct{}{}:
	default: // the flusher has not come to the one before, and will
	}
}

// flusher syncs what has waited for AckDelay, begins a new journal when it is
// time, and drops events that are too old, until the broker closes.
func (b *Broker) flusher() {
	delay := time.NewTimer(time.Hour)
	delay.Stop()
	defer delay.Stop()
	var age <-chan time.Time
	if b.opts.MaxAge > 0 {
		ticker := time.NewTicker(max(min(b.opts.MaxAge/10, time.Second), time.Millisecond))
		defer ticker.Stop()
		age = ticker.C
	}
	for {
		select {
		case <-b.stop:
			return
		case <-b.stirs:
			delay.Reset(b.opts.AckDelay)
		case <-delay.C:
			if b.flush() != nil {
				delay.Reset(troubleWait) // and stirs change nothing
			}
		case <-age:
			b.dropOld(time.Now())
		}
	}
}

// flush syncs what there is. If that fails, a new journal may do better.
func (b *Broker) flush() error {
	b.dirty.Store(false)
	size, position, err := b.journal.status()
	if err == nil {
		err = b.keep(position)
	}
	if err != nil || size > int64(b.opts.journalBytes) {
		if err = b.checkpoint(); err != nil {
			b.dirty.Store(true)
		}
	}
	return err
}

// keep puts what was appended to the journal where a crash leaves it.
func (b *Broker) keep(position uint64) error {
	if b.opts.Sync == SyncNever {
		return b.journal.write(position)
	}
	return b.journal.sync(position)
}

// checkpoint begins a new journal and stores the state of the subscriptions that
// have records in those before, which are removed.
func (b *Broker) checkpoint() (err error) {
	if err := b.failed(); err != nil {
		return err // the journals are all that there will be
	}
	_, _, broken := b.journal.status()
	if err := b.journal.rotate(); err != nil {
		return err
	}
	number := b.journal.current()
	batch := b.db.NewBatch()
	defer batch.Close()
	if err := batch.Set([]byte{keyJournal}, encodeNumber(number), nil); err != nil {
		return err
	}
	// A seek or a delete must not come between a state and the batch.
	b.admin.Lock()
	defer b.admin.Unlock()
	b.mu.Lock()
	all := maps.Clone(b.consumers)
	b.mu.Unlock()
	buried, err := b.buried()
	if err != nil {
		return err
	}
	stored := make(map[*consumer]uint64) // and since when their rows were behind
	defer func() {
		if err != nil {
			for c, since := range stored {
				c.mu.Lock()
				c.journaled = since
				c.mu.Unlock()
			}
		}
	}()
	for _, c := range all {
		c.mu.Lock()
		inc := c.inc
		var row []byte
		// What a burial did is in the journal, too, but perhaps not on the disk.
		if c.journaled != 0 && c.journaled < number || len(buried[inc]) > 0 {
			row = c.state().encode()
			stored[c] = c.journaled
			c.journaled = 0
		}
		// From here on the state tells of burials, but not of one that is
		// stored and not noted yet.
		buried[inc] = slices.DeleteFunc(buried[inc], func(seq uint64) bool { return c.out[seq] != nil || seq >= c.position() })
		c.mu.Unlock()
		if row != nil {
			if err := batch.Set(stateKey(inc), row, nil); err != nil {
				return err
			}
		}
	}
	for inc, seqs := range buried {
		for _, seq := range seqs {
			if err := batch.Delete(buriedKey(inc, seq), nil); err != nil {
				return err
			}
		}
	}
	// What the rows tell of beyond the beginning of the journal is there first.
	// Or a crash could leave the half of it, which undoes what a row says: that
	// an event waits, and not that it was settled then. Of a journal that is of
	// no use before it is resumed, nothing is there.
	if broken == nil {
		if err := b.journal.flushAll(); err != nil {
			return err
		}
	}
	// On the disk, whatever Options.Sync says, for the journals before go.
	if err := b.apply(batch, true); err != nil {
		return err
	}
	b.journal.resume()
	return removeJournals(b.fs, b.dir, number)
}

// buried returns the events that were buried, by incarnation, since the states
// were stored that tell of it.
func (b *Broker) buried() (map[uint64][]uint64, error) {
	it, err := b.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyBuried}, UpperBound: []byte{keyBuried + 1}})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	seqs := make(map[uint64][]uint64)
	for it.First(); it.Valid(); it.Next() {
		p := parser{b: it.Key()[1:]}
		inc, seq := p.uint64(), p.uint64()
		if p.err != nil {
			return nil, fmt.Errorf("ledger: the row of a burial: %w", p.err)
		}
		seqs[inc] = append(seqs[inc], seq)
	}
	return seqs, it.Error()
}

// removeJournals removes those before a number.
func removeJournals(fs vfs.FS, dir string, before uint64) error {
	numbers, err := journals(fs, dir)
	for _, n := range numbers {
		if n < before {
			err = errors.Join(err, fs.Remove(fs.PathJoin(dir, journalName(n))))
		}
	}
	return err
}
