package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// How much a subscription reads ahead, of entries and of their bytes.
const (
	aheadEntries = 1024
	aheadBytes   = 256 << 10
)

// aheadBeside is how many are left when it reads on beside the receiver, if at least
// as many are there to be read: else it is not worth a goroutine.
const aheadBeside = aheadEntries / 4

// passedNote is how many entries a subscription passes over, because their
// types are not its own, before it writes down that it did.
const passedNote = 1 << 14

// fill reads ahead, until there is something for the subscription or the log
// ends. Whoever calls it has set filling.
func (c *consumer) fill(ctx context.Context) {
	for more := true; more && ctx.Err() == nil && !c.broker.gate.closed(); {
		more = c.fillOnce()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filling = false
	if len(c.members) == 0 {
		c.setAside()
	}
	c.kick(time.Now())
}

// fillBeside is fill, while the receiver has something to do. Whoever calls it has
// entered the gate, too.
func (c *consumer) fillBeside() {
	defer c.broker.gate.leave(true)
	c.fill(context.Background())
}

// setAside gives up what was read ahead: it is read again.
func (c *consumer) setAside() {
	c.ahead, c.scan = nil, c.position()
	c.moves++
}

// fillOnce reads once, and reports whether to go on.
func (c *consumer) fillOnce() bool {
	c.mu.Lock()
	from, match, all, moves := c.scan, c.match, c.all, c.moves
	c.mu.Unlock()
	losses, first := c.log.losses(), c.log.first()
	es, next, err := c.log.read(max(from, first), aheadEntries, aheadBytes)
	fresh := es
	if !all {
		fresh = es[:0]
		for _, e := range es {
			// What has no type to be read is left to who decodes it.
			typ, err := c.log.typ(e.Data)
			if err != nil || match.Match(string(typ)) {
				fresh = append(fresh, e)
			}
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moves != moves || c.scan != from || c.log.losses() != losses {
		return true // moved, or something has gone meanwhile
	}
	if damage := (*queue.DamageError)(nil); errors.As(err, &damage) {
		c.reports = append(c.reports, fmt.Errorf("ledger: subscription %q: events in %s are damaged, and passed over: %w", c.sub.Name, c.broker.dir, err))
		c.skip(max(damage.To, from+1))
		return true
	}
	if err != nil {
		c.reports = append(c.reports, fmt.Errorf("ledger: subscription %q: reading ahead: %w", c.sub.Name, err))
		c.rest = time.Now().Add(troubleWait)
		return false
	}
	if len(c.dead) > 0 {
		fresh = slices.DeleteFunc(fresh, func(e queue.Entry) bool { return c.dead[e.Seq] })
	}
	if len(c.ahead) > 0 {
		fresh = append(c.ahead, fresh...)
	}
	c.ahead = fresh
	c.scan = max(next, from)
	maps.DeleteFunc(c.dead, func(seq uint64, _ bool) bool { return seq < c.position() })
	if len(c.ahead) == 0 && c.scan > from {
		c.passed += c.scan - from
		if c.passed >= passedNote {
			c.passed = 0
			c.note(recordPassed, nil)
		}
	}
	return len(c.ahead) == 0 && c.scan < c.log.end()
}

// skip passes over what is before next, and writes that down.
func (c *consumer) skip(next uint64) {
	c.scan = next
	c.note(recordPassed, nil)
}
