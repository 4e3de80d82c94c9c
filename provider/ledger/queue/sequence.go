package queue

import (
	"context"
	"fmt"
	"time"
)

// enqueue gives the records their place in the order: in a group that the
// caller is to wait for, nil when all were stored before. It says too whether
// the caller is to commit it.
func (p *Producer) enqueue(ctx context.Context, records []Record, call func(error)) (g *pending, lead bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	select {
	case <-p.loaded:
	default:
		select {
		case <-p.loaded:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	if p.broken != nil {
		return nil, false, p.broken
	}
	var w *waiter // this call, once it had to wait
	for {
		var ok bool
		p.mu.Lock()
		if ok = p.closed; ok {
			err = ErrClosed
		} else if w != nil || len(p.waiters) == 0 {
			g, ok, err = p.place(records)
		}
		var next *waiter
		if ok {
			next = p.leave(w)
		} else if w == nil {
			w = &waiter{wake: make(chan struct{}, 1)}
			p.waiters = append(p.waiters, w)
		}
		if g != nil {
			if call != nil {
				g.calls = append(g.calls, call)
			}
			if lead = !p.leading; lead {
				p.leading = true
				p.wg.Add(1)
			}
			if call == nil && g.done == nil && (!lead || ctx.Done() != nil) {
				g.done = make(chan struct{})
			}
		}
		p.mu.Unlock()
		next.signal()
		if ok {
			return g, lead, err
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			p.mu.Lock()
			next := p.leave(w)
			p.mu.Unlock()
			next.signal()
			return nil, false, ctx.Err()
		}
	}
}

// maxCall is how many bytes one call may store: a batch of the database holds
// less than 4 GiB.
const maxCall = 1<<31 - 1

// groupIDs is more than one commit may store: all its IDs are one value.
const groupIDs = 1 << 24

// place puts the records that are no duplicates into the last group or a new
// one. It returns the group that they and their originals are stored with, and
// whether it could: false when there is no room yet. Under mu.
func (p *Producer) place(records []Record) (g *pending, ok bool, err error) {
	var now time.Time
	if p.window != nil {
		now = time.Now()
		p.window.forget(len(records), now)
		p.window.prepare(records)
	}
	n, size := len(records), 0
	if n >= groupIDs {
		return nil, true, fmt.Errorf("queue: %d records in one call, want less than %d", n, groupIDs)
	}
	for i := range records {
		size += len(records[i].Data)
	}
	if size > maxCall {
		return nil, true, fmt.Errorf("queue: %d bytes in one call, want at most %d", size, maxCall)
	}
	if over := p.overBounds(n, size); over != nil {
		if p.window != nil {
			// n and size go on counting the duplicates, which go off one by one.
			over = p.overBounds(p.fresh(records, now))
		}
		if over != nil {
			// What is on its way to the disk may have been counted twice: as
			// pending, and as stored.
			return nil, p.entries == 0, over
		}
	}
	if p.entries > 0 && (p.entries+n > p.opts.PendingEntries || p.bytes+size > p.opts.PendingBytes) {
		return nil, false, nil
	}
	var last *pending // what to wait for
	for i := range records {
		r := &records[i]
		if p.window != nil && r.ID != [16]byte{} {
			var l *lot
			if g == nil {
				l = p.window.find(r.ID, now)
			}
			if l == nil {
				g = p.open(g, n, size)
				l = p.window.note(&r.ID, now)
			}
			if l != nil { // a duplicate
				if l.group != nil && (last == nil || l.from > last.lot.from) {
					last = l.group
				}
				n, size = n-1, size-len(r.Data)
				continue
			}
		}
		g = p.open(g, n, size)
		last = g
		g.add(r.Data, p.l.opts.RowBytes, max(size, p.hint-g.bytes), max(n, p.hint/64))
		n, size = n-1, size-len(r.Data)
		p.entries++
		p.bytes += len(r.Data)
	}
	if g != nil && p.isFull(g, 1, 1) {
		p.fill(g)
	}
	return last, true, nil
}

// fresh counts the records that are no duplicates. Under mu.
func (p *Producer) fresh(records []Record, now time.Time) (n, size int) {
	seen := make(map[[16]byte]bool)
	for i := range records {
		if id := records[i].ID; id != [16]byte{} {
			if seen[id] || p.window.find(id, now) != nil {
				continue
			}
			seen[id] = true
		}
		n++
		size += len(records[i].Data)
	}
	return n, size
}

// overBounds returns ErrFull when so much more does not fit into the ledger.
// Under mu.
func (p *Producer) overBounds(entries, bytes int) error {
	o := &p.opts
	if o.MaxEntries == 0 && o.MaxBytes == 0 || entries == 0 {
		return nil
	}
	n, size := uint64(entries), uint64(bytes)
	if !o.DiscardOldest {
		stored, weight := p.l.size()
		n += stored + uint64(p.entries)
		size += weight + uint64(p.bytes)
	}
	if o.MaxEntries > 0 && n > o.MaxEntries {
		return fmt.Errorf("%w: more than %d entries", ErrFull, o.MaxEntries)
	}
	if o.MaxBytes > 0 && size > o.MaxBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrFull, o.MaxBytes)
	}
	return nil
}

// open returns a group that so much may join: g, if there is one already. Under
// mu.
func (p *Producer) open(g *pending, entries, bytes int) *pending {
	if g != nil {
		return g
	}
	if n := len(p.queue); n > 0 {
		last := p.queue[n-1]
		if !last.full && !p.isFull(last, entries, bytes) {
			return last
		}
		p.fill(last)
	}
	g = &pending{}
	if p.opts.DiscardOldest {
		g.maxEntries, g.maxBytes = p.opts.MaxEntries, p.opts.MaxBytes
		g.discarding = p.opts.Discarding
	}
	if p.window != nil {
		g.lot = p.window.open(g, entries)
	}
	p.queue = append(p.queue, g)
	return g
}

// isFull reports whether a group has no room for so much more. What makes room by
// discarding stays within the bounds itself: nothing goes that was never there.
func (p *Producer) isFull(g *pending, entries, bytes int) bool {
	if g.maxEntries > 0 && uint64(g.entries+entries) > g.maxEntries || g.maxBytes > 0 && uint64(g.bytes+bytes) > g.maxBytes {
		return true
	}
	return g.entries+entries > min(p.opts.GroupEntries, groupIDs) || g.bytes+bytes > p.opts.GroupBytes
}
