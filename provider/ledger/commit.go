package ledger

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// failed returns why the broker can store nothing more, or nil.
func (b *Broker) failed() error {
	err := b.guard.Err()
	if err == nil {
		err = b.events.Err()
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("ledger: nothing can be stored in %s before it is opened anew: %w", b.dir, err)
}

// commit stores a batch, on the disk if sync and Options.Sync say so.
func (b *Broker) commit(batch *pebble.Batch, sync bool) error {
	return b.apply(batch, sync && b.opts.Sync != SyncNever)
}

// apply stores a batch, on the disk if sync says so.
func (b *Broker) apply(batch *pebble.Batch, sync bool) error {
	if err := b.failed(); err != nil {
		return err
	}
	how := pebble.NoSync
	if sync {
		how = pebble.Sync
	}
	if err := b.db.Apply(batch, how); err != nil {
		return err
	}
	return b.failed()
}
