package main

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/catchment-events/catchment/event"
)

// openPebble is the store below provider/ledger: a key for each event, on the
// disk when publish returns, and deleted when it is acked.
func openPebble(_ context.Context, s site) (*link, error) {
	db, err := pebble.Open(s.dir, &pebble.Options{Logger: silent{}})
	if err != nil {
		return nil, err
	}
	var last atomic.Uint64
	l := &link{
		publish: func(_ context.Context, e event.Event) error {
			return db.Set(pebbleKey(last.Add(1)), pebbleValue(nil, e), pebble.Sync)
		},
		batch: func(_ context.Context, es []event.Event) error {
			b := db.NewBatch()
			var value []byte
			for _, e := range es {
				value = pebbleValue(value[:0], e)
				if err := b.Set(pebbleKey(last.Add(1)), value, nil); err != nil {
					return errors.Join(err, b.Close())
				}
			}
			return errors.Join(b.Commit(pebble.Sync), b.Close())
		},
		close: db.Close,
	}
	if s.stored { // it has no way to wait for what is not there yet
		l.subscribe = func(context.Context) (member, error) {
			return func(ctx context.Context, handle handler) error { return pebbleConsume(ctx, db, handle) }, nil
		}
	}
	return l, nil
}

func pebbleKey(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'e'}, n) }

// pebbleValue appends the attributes and the data, each after its length.
func pebbleValue(to []byte, e event.Event) []byte {
	one := func(s string) {
		to = binary.AppendUvarint(to, uint64(len(s)))
		to = append(to, s...)
	}
	one(e.ID())
	for _, a := range attributes {
		one(a.name)
		one(a.value)
	}
	return append(to, e.Data()...)
}

// pebbleConsume reads in order, and deletes what was handled: by the hundred,
// and not synced, as our acks are.
func pebbleConsume(ctx context.Context, db *pebble.DB, handle handler) (err error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	b := db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	more := true
	for it.First(); it.Valid() && more; it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		n, size := binary.Uvarint(value)
		more = handle(string(value[size : size+int(n)]))
		if err := b.Delete(it.Key(), nil); err != nil {
			return err
		}
		if b.Count() < 100 && more {
			continue
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			return err
		}
		if err := errors.Join(b.Close(), ctx.Err()); err != nil {
			return err
		}
		b = db.NewBatch()
	}
	return it.Error()
}

// silent is a logger that keeps to itself what is not an error that ends the
// process.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	pebble.DefaultLogger.Fatalf(format, args...)
}
