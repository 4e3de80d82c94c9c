package memory

import (
	"fmt"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A pending entry is to be stored.
type pending struct {
	entry     entry
	key       key  // the zero key: it is no duplicate
	duplicate bool // store has found it to be one
}

// store appends what is not a duplicate, or nothing if it does not fit.
func (b *Broker) store(entries []pending) error {
	now, crowded, err := b.append(entries)
	if err != nil {
		return err
	}
	// A Receive says that it waits before it looks into the log for the last time. So
	// either it is seen here, or it has seen the entries.
	if crowded || b.log.waiting.some.Load() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if crowded {
			b.log.note()
		}
		b.log.wake(entries, now)
	}
	return nil
}

// append is store, but for what needs the broker's mutex: waking those who wait, and
// when crowded, noting what was dropped.
func (b *Broker) append(entries []pending) (now time.Time, crowded bool, err error) {
	b.storing.Lock()
	defer b.storing.Unlock()
	if b.closed.Load() {
		return now, false, messaging.ErrClosed
	}
	now = time.Now()
	b.window.forget(now, 2*len(entries)+64)
	count, size := 0, int64(0)
	for i := range entries {
		e := &entries[i]
		if e.key != (key{}) {
			if e.duplicate = b.window.has(e.key, now); e.duplicate {
				continue
			}
			b.window.add(e.key, now)
		}
		count++
		size += e.entry.size
	}
	l := b.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := b.makeRoom(count, size); err != nil {
		return now, false, b.full(entries, now, err)
	}
	for i := range entries {
		if e := &entries[i]; !e.duplicate {
			e.entry.stored = now
			l.append(&e.entry)
		}
	}
	return now, len(l.lost) >= mostLost, nil
}

// full takes back what store noted of the events that it could not store, and
// says for each event of the call what became of it.
func (b *Broker) full(entries []pending, now time.Time, err error) error {
	for _, e := range slices.Backward(entries) {
		if e.key != (key{}) && !e.duplicate {
			b.window.undo(e.key)
		}
	}
	if len(entries) == 1 {
		return err
	}
	errs := make([]error, len(entries))
	for i, e := range entries {
		// What is stored still was there before the call. The duplicate of an
		// event of this call is not.
		if !b.window.has(e.key, now) {
			errs[i] = err
		}
	}
	return &reactor.BatchError{Errors: errs}
}

// makeRoom makes the log fit for more, or says that it does not.
func (b *Broker) makeRoom(count int, size int64) error {
	if count > b.opts.MaxEvents || size > b.opts.MaxBytes {
		return fmt.Errorf("%w: %d events of %d bytes at once, of %d and %d at most", messaging.ErrFull, count, size, b.opts.MaxEvents, b.opts.MaxBytes)
	}
	for b.log.count+count > b.opts.MaxEvents || b.log.size+size > b.opts.MaxBytes {
		if !b.opts.DiscardOldest {
			return fmt.Errorf("%w: %d events of %d, %d bytes of %d", messaging.ErrFull, b.log.count, b.opts.MaxEvents, b.log.size, b.opts.MaxBytes)
		}
		b.log.dropOldest()
	}
	return nil
}
