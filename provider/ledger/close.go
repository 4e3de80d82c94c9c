package ledger

import (
	"errors"
	"maps"
	"time"
)

// Close ends the broker and its sources, which release what they handed out. It
// stores all that is not stored yet, and is idempotent.
func (b *Broker) Close() error {
	b.close.Do(b.shut)
	<-b.down // also for who came second
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.result
}

func (b *Broker) shut() {
	defer close(b.down)
	empty := b.gate.close()
	b.mu.Lock()
	all := maps.Clone(b.consumers)
	b.mu.Unlock()
	now := time.Now()
	for _, c := range all {
		c.mu.Lock()
		members := maps.Clone(c.members)
		c.mu.Unlock()
		for s := range members {
			s.close(now)
		}
	}
	err := b.producer.Close()
	<-empty
	close(b.stop)
	b.work.Wait()
	if failed := b.failed(); failed != nil {
		// What is not in the rows is in the journals, for the next Open.
		err = errors.Join(err, failed)
	} else {
		err = errors.Join(err, b.checkpoint())
	}
	err = errors.Join(err, b.journal.flushAll(), b.journal.close(), b.db.Close())
	err = errors.Join(err, b.held.release())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.result = err
}
