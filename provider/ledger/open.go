package ledger

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// Open opens the broker that is in a directory, or starts one there. One process
// has it at a time: the error of a second Open says who. It takes as long as it
// takes to read what subscriptions did last; the length of the log is of no
// importance.
//
// What was with a member when the process died that had the broker, has failed
// [RCV-2]. After a Close nothing has.
func Open(dir string, opts *Options) (*Broker, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	held, err := seize(o.fs, dir)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		opts:      o,
		fs:        o.fs,
		dir:       dir,
		held:      held,
		gate:      newGate(),
		consumers: make(map[identity]*consumer),
		letters:   make(map[string]*letters),
		stirs:     make(chan struct{}, 1),
		stop:      make(chan struct{}),
		down:      make(chan struct{}),
	}
	if err := b.open(); err != nil {
		err = fmt.Errorf("ledger: open %s: %w", dir, err)
		if b.journal != nil {
			err = errors.Join(err, b.journal.close())
		}
		if b.producer != nil {
			err = errors.Join(err, b.producer.Close())
		}
		if b.db != nil {
			err = errors.Join(err, b.db.Close())
		}
		return nil, errors.Join(err, held.release())
	}
	b.work.Go(b.flusher)
	return b, nil
}

// open does what Open does in the directory.
func (b *Broker) open() error {
	fresh, err := checkFormat(b.fs, b.dir)
	if err != nil {
		return err
	}
	b.db, b.guard, err = queue.OpenDB(b.fs.PathJoin(b.dir, storeDir), &pebble.Options{
		FS:                          b.fs,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                32 << 20,
		MemTableStopWritesThreshold: 4,
	})
	if err != nil {
		return err
	}
	b.events = new(events)
	b.events.Ledger, err = queue.OpenLedger(b.db, []byte{keyLog}, &queue.LedgerOptions{
		NoSync: b.opts.Sync == SyncNever,
		Grown:  func(uint64) { b.events.grown() },
		Failed: b.guard.Err,
	})
	if err != nil {
		return err
	}
	b.producer = queue.NewProducer(b.events.Ledger, &queue.ProducerOptions{
		Duplicates:    b.opts.Duplicates,
		MaxEntries:    uint64(b.opts.MaxEvents),
		MaxBytes:      uint64(b.opts.MaxBytes),
		DiscardOldest: b.opts.DiscardOldest,
		Discarding:    b.discarding,
	})
	b.share()
	if err := b.load(); err != nil || !fresh {
		return err
	}
	return confirmFormat(b.fs, b.dir)
}
