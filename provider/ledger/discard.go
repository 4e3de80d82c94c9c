package ledger

import (
	"maps"
	"time"

	"github.com/catchment-events/catchment/event"
)

// discarding is called before the entries of the log from one on to another are
// deleted. It counts what each subscription thereby loses that it had not
// received [RET-3].
func (b *Broker) discarding(from, to uint64) {
	type loser struct {
		c      *consumer
		match  event.Pattern
		dead   map[uint64]bool
		from   uint64
		missed uint64
	}
	var place uint64
	var passed []passer
	var losers []*loser // those that select by type, for which one must look
	for _, c := range *b.all.Load() {
		c.keepHeld(from, to)
		if c.at.Load() >= to {
			continue
		}
		c.mu.Lock()
		n, missed := 0, c.missed
		for n < len(c.ahead) && c.ahead[n].Seq < to {
			n++
		}
		c.missed += uint64(n)
		c.ahead = c.ahead[n:]
		if at := max(c.scan, from); at < to {
			c.scan = to
			if !c.all { // to be written down when it is known how many they are
				losers = append(losers, &loser{c: c, match: c.match, dead: maps.Clone(c.dead), from: at})
				c.mu.Unlock()
				continue
			}
			c.missed += to - at - within(c.dead, at, to)
		}
		place = c.note(recordPassed, nil)
		if c.missed == missed {
			passed = append(passed, passer{c, c.inc, c.position()})
		}
		c.kick(time.Now())
		c.mu.Unlock()
	}
	b.keepPassed(passed, place)
	if len(losers) == 0 {
		b.writeDown(place)
		return
	}
	for at := from; at < to; {
		es, next, err := readOver(b.events, at, aheadEntries, aheadBytes)
		if err != nil || next <= at {
			break // nobody knows what they were
		}
		for _, e := range es {
			typ, err := eventType(e.Data)
			for _, l := range losers {
				if e.Seq >= l.from && e.Seq < to && !l.dead[e.Seq] && (err != nil || l.match.Match(string(typ))) {
					l.missed++
				}
			}
		}
		at = next
	}
	for _, l := range losers {
		l.c.mu.Lock()
		l.c.missed += l.missed
		place = l.c.note(recordPassed, nil)
		l.c.kick(time.Now())
		l.c.mu.Unlock()
	}
	b.writeDown(place)
}

// keepHeld reads again what is with a member, or to be buried, of the entries from one on
// to another, that are about to go: it may yet become a dead letter.
func (c *consumer) keepHeld(from, to uint64) {
	var items []*item
	look := func(it *item) {
		switch {
		case it == nil || it.kept || it.hold == nil && !it.doomed:
		case it.data == nil:
			items = append(items, it)
		default:
			it.kept = true
		}
	}
	c.mu.Lock()
	if to-from < uint64(len(c.out)) {
		for seq := from; seq < to; seq++ {
			look(c.out[seq])
		}
	} else {
		for seq, it := range c.out {
			if seq >= from && seq < to {
				look(it)
			}
		}
	}
	c.mu.Unlock()
	for _, it := range items {
		e, ok, err := at(c.log, it.seq)
		if err != nil || !ok {
			continue // it goes
		}
		c.mu.Lock()
		if it.hold != nil || it.doomed {
			it.data, it.stored, it.kept = e.Data, e.Stored, true
		}
		c.mu.Unlock()
	}
}

// A passer is a consumer that is beyond what is to be discarded, and has lost
// nothing.
type passer struct {
	c        *consumer
	inc      uint64
	position uint64
}

// keepPassed puts on the disk how far consumers are, before the entries go: or the
// loss of power would leave the one without the other, as if something was lost. It
// is not needed again before the log has come so far.
func (b *Broker) keepPassed(passed []passer, place uint64) {
	if len(passed) == 0 || b.keep(place) != nil {
		return
	}
	for _, p := range passed {
		p.c.mu.Lock()
		if p.c.inc == p.inc { // not moved meanwhile
			p.c.at.Store(p.position)
		}
		p.c.mu.Unlock()
	}
}

// writeDown gives records to the operating system, if that takes them now.
func (b *Broker) writeDown(place uint64) {
	if place > 0 {
		_ = b.journal.write(place) // or the flusher does
		b.stir()
	}
}

// dropOld deletes what is older than MaxAge.
func (b *Broker) dropOld(now time.Time) {
	if b.failed() != nil {
		return // it all stays, and can be received
	}
	to, err := b.events.since(now.Add(-b.opts.MaxAge))
	if err != nil {
		return // damaged: the next may be readable, when it is old enough
	}
	from := b.events.first()
	if to <= from {
		return
	}
	b.discarding(from, to)
	_ = b.events.DeleteTo(to) // or the next time
}
