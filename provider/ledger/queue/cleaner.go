package queue

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// CleanerOptions say what a cleaner deletes. With the zero value and nil it
// deletes nothing.
type CleanerOptions struct {
	// MaxEntries, MaxBytes and MaxAge bound what stays: the oldest entries
	// beyond them go. Default 0: no bound.
	MaxEntries uint64
	MaxBytes   uint64
	MaxAge     time.Duration

	// Settled deletes, besides, what every registered consumer has settled.
	// Default: that stays as long as the bounds let it.
	Settled bool

	// Force lets the bounds delete what a registered consumer has not settled.
	// Dropped then hears of it. Default: it stays, whatever the bounds.
	Force bool

	// Unclaimed lets the bounds delete entries while no consumer is registered.
	// Default: then nothing is deleted: the first one may still want it.
	Unclaimed bool

	// Dropped, if not nil, is told what was deleted although a registered
	// consumer had not settled it.
	Dropped func(Drop)
}

// A Drop is a consumer's loss: the entries from From to the one before To that
// were deleted, of which some may be settled.
type Drop struct {
	Name     string
	From, To uint64
}

// A Cleaner deletes the oldest entries of a ledger. Its methods are safe for
// concurrent use.
type Cleaner struct {
	l    *Ledger
	t    *Table
	opts CleanerOptions
}

// NewCleaner returns a cleaner of a ledger, for consumers that are registered in
// a table.
func NewCleaner(l *Ledger, t *Table, opts *CleanerOptions) *Cleaner {
	c := &Cleaner{l: l, t: t}
	if opts != nil {
		c.opts = *opts
	}
	return c
}

// Clean deletes what is to go now and returns how many entries that were. What
// counts is what consumers have settled on the disk, see
// [ConsumerOptions].FlushDelay.
func (c *Cleaner) Clean() (deleted uint64, err error) {
	deleted, drops, err := c.clean()
	if c.opts.Dropped != nil {
		for _, d := range drops {
			c.opts.Dropped(d)
		}
	}
	return deleted, err
}

func (c *Cleaner) clean() (deleted uint64, drops []Drop, err error) {
	c.t.gate <- struct{}{} // no name is registered meanwhile
	defer func() { <-c.t.gate }()
	floors, err := c.t.Floors()
	if err != nil {
		return 0, nil, err
	}
	to, err := c.bound()
	if err != nil {
		return 0, nil, fmt.Errorf("queue: clean: %w", err)
	}
	if len(floors) == 0 && !c.opts.Unclaimed {
		return 0, nil, nil
	}
	if len(floors) > 0 {
		slowest := slices.Min(slices.Collect(maps.Values(floors)))
		if !c.opts.Force {
			to = min(to, slowest)
		}
		if c.opts.Settled {
			to = max(to, slowest)
		}
	}
	first := c.l.First()
	to = min(to, c.l.Next())
	if to <= first {
		return 0, nil, nil
	}
	if err := c.l.DeleteTo(to); err != nil {
		return 0, nil, fmt.Errorf("queue: clean: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(floors)) {
		if from := max(floors[name], first); from < to {
			drops = append(drops, Drop{Name: name, From: from, To: to})
		}
	}
	return to - first, drops, nil
}

// bound returns the first entry that the bounds let stay.
func (c *Cleaner) bound() (to uint64, err error) {
	if n, next := c.opts.MaxEntries, c.l.Next(); n > 0 && next > n {
		to = next - n
	}
	if n := c.opts.MaxBytes; n > 0 {
		seq, err := c.l.fits(n)
		if err != nil {
			return 0, err
		}
		to = max(to, seq)
	}
	if age := c.opts.MaxAge; age > 0 {
		seq, err := c.l.Since(time.Now().Add(-age))
		if err != nil {
			return 0, err
		}
		to = max(to, seq)
	}
	return to, nil
}

// fits returns the first entry that stays when no more than so many bytes may.
func (l *Ledger) fits(bytes uint64) (uint64, error) {
	l.mu.Lock()
	lo, hi, total := l.first, l.next.Load(), l.total
	l.mu.Unlock()
	for lo < hi {
		mid := lo + (hi-lo)/2
		r, err := l.rowOf(mid)
		if err != nil {
			return 0, err
		}
		switch {
		case r == nil: // deleted meanwhile
			lo = mid + 1
		case total-r.beforeSeq(mid) <= bytes:
			hi = mid
		default:
			lo = mid + 1
		}
	}
	return lo, nil
}
