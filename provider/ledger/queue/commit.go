package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// A group is what one commit stores.
type group struct {
	rows    []*row
	entries int
	bytes   int
	ids     [][16]byte
	forget  uint64    // IDs of groups that start before this one are forgotten
	stored  time.Time // set by the commit

	// If not 0, the oldest entries make room, and discarding, if not nil, hears
	// of them before.
	maxEntries, maxBytes uint64
	discarding           func(from, to uint64)
}

// add copies an entry into the group. So many bytes and entries will probably
// come with it and after it. A row that has not been given the memory for one
// more is not copied into a larger one, but followed by another as large as all.
func (g *group) add(data []byte, rowBytes, bytes, entries int) {
	n := len(g.rows)
	if n == 0 || !g.rows[n-1].fits(data, rowBytes) {
		bytes = max(min(max(bytes, g.bytes), rowBytes), len(data))
		entries = max(min(entries, 4096), 1)
		b := make([]byte, bytes+4*entries)
		g.rows = append(g.rows, &row{data: b[:0:bytes], ends: b[bytes:bytes]})
		n++
	}
	g.rows[n-1].add(data)
	g.entries++
	g.bytes += len(data)
}

// A flight is a batch between being handed to the database and being on the
// disk. Flights land in the order in which they were launched.
type flight struct {
	batch   *pebble.Batch
	quiet   bool // nobody waits until it is on the disk
	rows    []*row
	planned *meta // to become visible with it
	before  *flight
	landed  chan struct{} // nil: none was launched while it flew
	err     error         // once landed
	down    bool          // landed; under mu
}

// meta puts a meta row into the flight's batch.
func (c *flight) meta(l *Ledger, m meta) {
	c.planned = &m
	c.batch.Set(l.key(kindMeta, 0), m.encode(), nil)
}

// commit stores a group.
func (l *Ledger) commit(g *group) error {
	c, err := l.start(g)
	if err != nil {
		return err
	}
	return l.land(c)
}

// start launches the flight of a group.
func (l *Ledger) start(g *group) (*flight, error) {
	told := l.First()
	for {
		c, to, err := l.take(g, told)
		if c != nil || err != nil {
			return c, err
		}
		g.discarding(told, to)
		told = to
	}
}

// take gives the group its place and hands it to the database. When that would
// discard entries from told on it does not, but says up to which.
func (l *Ledger) take(g *group, told uint64) (_ *flight, discard uint64, err error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.Err(); err != nil {
		return nil, 0, err
	}
	l.place(g)
	t, err := l.trim(g)
	if err != nil {
		l.heads = l.heads[:find(l.heads, l.end)]
		return nil, 0, err
	}
	if g.discarding != nil && t.first > told {
		l.heads = l.heads[:find(l.heads, l.end)] // those of the group may yet move
		return nil, t.first, nil
	}
	c, err := l.build(g, t)
	if err != nil {
		l.fail(err)
		return nil, 0, err
	}
	last := g.rows[len(g.rows)-1]
	l.end, l.bytes = last.next(), last.before+uint64(len(last.data))
	l.planned.stored = last.stored.UnixNano()
	return c, 0, l.launch(c)
}

// place gives the rows of a group their place.
func (l *Ledger) place(g *group) {
	g.stored = time.Unix(0, max(time.Now().UnixNano(), l.planned.stored))
	end, bytes := l.end, l.bytes
	for _, r := range g.rows {
		r.first, r.stored, r.before = end, g.stored, bytes
		end, bytes = r.next(), bytes+uint64(len(r.data))
	}
}

// build makes the flight of a group.
func (l *Ledger) build(g *group, t trim) (*flight, error) {
	size := 512 + 16*len(g.ids)
	for _, r := range g.rows {
		size += r.encodedLen() + l.keyLen() + 16
	}
	c := &flight{batch: l.db.NewBatchWithSize(size), rows: g.rows}
	for _, r := range g.rows {
		op := c.batch.SetDeferred(l.keyLen(), r.encodedLen())
		l.putKey(op.Key, kindRow, r.first)
		r.encode(op.Value)
		if err := op.Finish(); err != nil {
			return nil, err
		}
	}
	if len(g.ids) > 0 {
		op := c.batch.SetDeferred(l.keyLen(), 8+16*len(g.ids))
		l.putKey(op.Key, kindIDs, g.rows[0].first)
		b := binary.BigEndian.AppendUint64(op.Value[:0], uint64(g.stored.UnixNano()))
		for i := range g.ids {
			b = append(b, g.ids[i][:]...)
		}
		if err := op.Finish(); err != nil {
			return nil, err
		}
	}
	if g.forget > 0 {
		if err := c.batch.DeleteRange(l.key(kindIDs, 0), l.key(kindIDs, g.forget), nil); err != nil {
			return nil, err
		}
	}
	if t.first > l.planned.first {
		c.meta(l, meta{first: t.first, deleted: t.deleted, stored: g.stored.UnixNano()})
		l.doomed(t)
		return c, l.sweep(c, l.First())
	}
	return c, nil
}

// launch hands a flight to the database. On an error the ledger has failed.
func (l *Ledger) launch(c *flight) (err error) {
	defer func() {
		// The database panics when its log cannot be written.
		if p := recover(); p != nil {
			err = fmt.Errorf("the database failed: %v", p)
		}
		if err != nil {
			l.fail(fmt.Errorf("queue: %w", err))
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}()
	if l.opts.NoSync || c.quiet {
		err = l.db.Apply(c.batch, pebble.NoSync)
	} else {
		err = l.db.ApplyNoSyncWait(c.batch, pebble.Sync)
	}
	if err != nil {
		return fmt.Errorf("the database failed: %w", err)
	}
	if c.quiet {
		return c.batch.Close()
	}
	if c.planned != nil {
		l.planned = *c.planned
	}
	if l.flying != nil {
		l.mu.Lock()
		if !l.flying.down {
			c.before = l.flying
			if c.before.landed == nil {
				c.before.landed = make(chan struct{})
			}
		}
		l.mu.Unlock()
	}
	l.flying = c
	return nil
}

// land waits until a flight is on the disk, and makes it visible.
func (l *Ledger) land(c *flight) error {
	var err error
	if !l.opts.NoSync {
		err = c.batch.SyncWait()
	}
	if before := c.before; before != nil {
		<-before.landed
		if err == nil {
			err = before.err
		}
		c.before = nil
	}
	if err == nil && l.opts.Failed != nil {
		err = l.opts.Failed()
	}
	if err == nil {
		err = c.batch.Close()
	}
	c.batch = nil

	l.mu.Lock()
	if err == nil {
		l.show(c)
	} else if l.failure == nil {
		l.failure = fmt.Errorf("queue: the database failed: %w", err)
	}
	c.down, c.err = true, err
	landed, changed := c.landed, l.changed
	l.changed = nil
	next := l.next.Load()
	l.mu.Unlock()

	if landed != nil {
		close(landed)
	}
	if changed != nil {
		close(changed)
	}
	if err != nil {
		return fmt.Errorf("%w: the database failed: %w", ErrUnknown, err)
	}
	if len(c.rows) > 0 && l.opts.Grown != nil {
		l.opts.Grown(next)
	}
	return nil
}

// Commit applies a batch of other rows of the ledger's database, waits for the
// disk if sync is set, and closes the batch. It fails where the ledger has failed,
// and the ledger fails with it.
func (l *Ledger) Commit(b *pebble.Batch, sync bool) (err error) {
	if err := l.Err(); err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the database failed: %v", p)
		}
		if err != nil {
			l.fail(fmt.Errorf("queue: %w", err))
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}()
	if sync {
		if err = l.db.ApplyNoSyncWait(b, pebble.Sync); err == nil {
			err = b.SyncWait()
		}
	} else {
		err = l.db.Apply(b, pebble.NoSync)
	}
	if err == nil && l.opts.Failed != nil {
		err = l.opts.Failed()
	}
	if err == nil {
		err = b.Close()
	}
	if err != nil {
		return fmt.Errorf("the database failed: %w", err)
	}
	return nil
}

// show makes a flight visible. Under mu.
func (l *Ledger) show(c *flight) {
	if m := c.planned; m != nil {
		l.first, l.deleted = m.first, m.deleted
	}
	for _, r := range c.rows {
		l.tail = append(l.tail, r)
		l.weight += r.size()
		l.total += uint64(len(r.data))
		l.next.Store(r.next())
	}
	gone := 0
	for l.weight > l.opts.TailBytes && gone < len(l.tail)-1 || gone < len(l.tail) && l.tail[gone].next() <= l.first {
		l.weight -= l.tail[gone].size()
		l.tail[gone] = nil
		gone++
	}
	l.tail = l.tail[gone:]
}

// fail makes the ledger store nothing more.
func (l *Ledger) fail(err error) {
	l.mu.Lock()
	if l.failure == nil {
		l.failure = err
	}
	changed := l.changed
	l.changed = nil
	l.mu.Unlock()
	if changed != nil {
		close(changed)
	}
}

const (
	sweepRows = 64  // rows that are deleted at once when the oldest make room
	loadRows  = 256 // rows whose ends are kept in memory for that
)

// A doom is the rows that hold only deleted entries. They go from the database a
// few at a time, for each deletion of a range costs readers a little, and only
// once First has moved beyond them for everybody to see.
type doom struct {
	first uint64 // what First will be by then
	end   uint64 // the first row that stays
	rows  int    // how many are known
}

// sweep puts into a flight what deletes the rows that are doomed.
func (l *Ledger) sweep(c *flight, first uint64) error {
	if l.doom.rows < sweepRows || first < l.doom.first {
		return nil
	}
	if err := c.batch.DeleteRange(l.key(kindRow, l.swept), l.key(kindRow, l.doom.end), nil); err != nil {
		return err
	}
	l.swept, l.doom.rows = l.doom.end, 0
	l.bottom.Store(l.doom.end)
	return nil
}

// A trim is how the oldest entries make room.
type trim struct {
	first, deleted uint64 // as in a meta row
	rows           int    // how many of the heads go
}

// trim returns what has to go so that a group's bounds hold.
func (l *Ledger) trim(g *group) (trim, error) {
	t := trim{first: l.planned.first, deleted: l.planned.deleted}
	last := g.rows[len(g.rows)-1]
	end, bytes := last.next(), last.before+uint64(len(last.data))
	over := func(first, deleted uint64) bool {
		return g.maxEntries > 0 && end-first > g.maxEntries || g.maxBytes > 0 && bytes-deleted > g.maxBytes
	}
	for over(t.first, t.deleted) {
		if t.rows == len(l.heads) {
			if err := l.loadHeads(&t, g.rows); err != nil {
				return t, fmt.Errorf("queue: discard the oldest entries: %w", err)
			}
		}
		r := l.heads[t.rows]
		if deleted := r.before + uint64(r.end(r.len()-1)); over(r.next(), deleted) {
			t.first, t.deleted = r.next(), deleted
			t.rows++
			continue
		}
		for over(t.first, t.deleted) {
			t.deleted = r.before + uint64(r.end(int(t.first-r.first)))
			t.first++
		}
		if t.first == r.next() {
			t.rows++
		}
	}
	return t, nil
}

// doomed notes that a trim is to happen.
func (l *Ledger) doomed(t trim) {
	l.heads = l.heads[t.rows:]
	if l.doom.rows < sweepRows {
		l.doom.first, l.doom.end = t.first, t.first
		if len(l.heads) > 0 {
			l.doom.end = min(t.first, l.heads[0].first)
		}
	}
	l.doom.rows += t.rows
}

// loadHeads adds to the heads, from where a trim stands. What cannot be read
// goes without being looked at.
func (l *Ledger) loadHeads(t *trim, rows []*row) error {
	heads, err := l.oldest(t.first, rows)
	if damaged := (*DamageError)(nil); len(heads) == 0 && errors.As(err, &damaged) {
		t.first = damaged.To
		if heads, err = l.oldest(t.first, rows); len(heads) > 0 {
			t.deleted = heads[0].before
		}
	}
	if len(heads) == 0 {
		return err
	}
	l.heads = append(l.heads, heads...)
	return nil
}

// oldest returns the rows from the one that holds first on, without their data.
// After what the database has come the rows of the group that is about to be
// committed.
func (l *Ledger) oldest(first uint64, rows []*row) (heads []*row, err error) {
	if first < l.end { // l.end is not yet beyond the group
		err = l.scan(first, l.end, func(r *row) bool {
			ends := append([]byte(nil), r.ends...)
			heads = append(heads, &row{first: r.first, stored: r.stored, before: r.before, ends: ends})
			return len(heads) < loadRows
		})
		if err != nil || len(heads) == loadRows {
			return heads, err
		}
	}
	for _, r := range rows[min(find(rows, first), len(rows)):] {
		heads = append(heads, &row{first: r.first, stored: r.stored, before: r.before, ends: r.ends})
	}
	return heads, nil
}
