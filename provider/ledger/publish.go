package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger/queue"
	"github.com/catchment-events/catchment/reactor"
)

// Publish stores the events: all of them, or on an error none, unless the error
// wraps ErrUnknown [CAP OrderedPublish]. It returns when they are on the disk,
// or what Options.Sync says instead [CAP Synced]. See [messaging.Publisher] for
// the contract.
func (b *Broker) Publish(ctx context.Context, events ...event.Event) error {
	if !b.gate.enter() {
		return messaging.ErrClosed
	}
	defer b.gate.leave(true)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := messaging.CheckEvents(messaging.MaxEventSize, events...); err != nil {
		return err
	}
	if len(events) == 0 {
		return nil
	}
	w := writers.Get().(*writer)
	defer w.free()
	for _, e := range events {
		if err := w.add(e); err != nil {
			return fmt.Errorf("%w: %w", messaging.ErrInvalid, err)
		}
	}
	return b.store(ctx, w)
}

// store appends what was written.
func (b *Broker) store(ctx context.Context, w *writer) error {
	records := w.finish()
	if err := b.failed(); err != nil {
		return err
	}
	err := b.producer.Append(ctx, records...)
	if err == nil {
		return nil
	}
	one := err
	switch {
	case errors.Is(err, queue.ErrFull):
		one = fmt.Errorf("%w: %w", messaging.ErrFull, err)
	case errors.Is(err, queue.ErrClosed):
		one = messaging.ErrClosed
	case errors.Is(err, queue.ErrUnknown), ctx.Err() != nil:
		one = fmt.Errorf("%w: %w", messaging.ErrUnknown, err)
	}
	if len(records) == 1 || one == messaging.ErrClosed {
		return one
	}
	errs := make([]error, len(records))
	for i, r := range records {
		// What is stored was there before the call, or is by now.
		if r.ID == [16]byte{} || !b.producer.Seen(r.ID) {
			errs[i] = one
		}
	}
	if errors.Join(errs...) == nil {
		return nil // it was stored as ctx ended
	}
	return &reactor.BatchError{Errors: errs}
}

// A writer encodes the events of one call.
type writer struct {
	buf     []byte
	ends    []int
	records []queue.Record
}

var writers = sync.Pool{New: func() any { return new(writer) }}

func (w *writer) add(e event.Event) (err error) {
	buf, err := appendEvent(w.buf, e)
	if err != nil {
		return err
	}
	w.buf = buf
	w.end(eventID(e.Source(), e.ID()))
	return nil
}

func (w *writer) end(id [16]byte) {
	w.ends = append(w.ends, len(w.buf))
	w.records = append(w.records, queue.Record{ID: id})
}

// finish returns the records. They are the writer's.
func (w *writer) finish() []queue.Record {
	from := 0
	for i, to := range w.ends {
		w.records[i].Data = w.buf[from:to:to]
		from = to
	}
	return w.records
}

func (w *writer) free() {
	if cap(w.buf) > 1<<20 {
		return
	}
	clear(w.records)
	w.buf, w.ends, w.records = w.buf[:0], w.ends[:0], w.records[:0]
	writers.Put(w)
}
