package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// Relay returns a reactor that publishes what stands in the outbox, named as the
// table: run it alone or in a [reactor.Group]. It is reactor.NewBatch of
// [Outbox.Source] and [PublishTo], with a BatchSize of 500 and a BatchWait of
// 5 ms where opts, which it copies, says nothing of them.
func (o *Outbox) Relay(p messaging.Publisher, opts *messaging.Options) *reactor.Reactor {
	var c messaging.Options
	if opts != nil {
		c = *opts
	}
	if c.BatchSize == 0 {
		c.BatchSize = 500
	}
	if c.BatchWait == 0 {
		c.BatchWait = 5 * time.Millisecond
	}
	return reactor.NewBatch(o.table.String(), o.Source, publishTo(p, o.opts.HoldParked), &c)
}

// PublishTo returns a handler for [reactor.RunBatch] that publishes a batch and
// says for each event what became of it. What the publisher refuses with
// ErrInvalid or ErrTooLarge is rejected, and does not keep the others.
//
// A batch is one call of Publish, unless it has several events of a partition
// key: a broker may store the events of one call in another order when something
// fails [PUB-2], so there a new call begins. After an event has failed, or was
// rejected, the later ones of its key are released untried: with
// Options.HoldParked they wait, and otherwise they come again at once. One batch
// at a time keeps the order of keys, which is what a Concurrency of 1, the
// default, does.
func PublishTo(p messaging.Publisher) reactor.BatchHandler[event.Event] {
	return publishTo(p, true)
}

// publishTo is PublishTo. Without hold, nothing waits for what is rejected, and
// the later ones of its key need not come again.
func publishTo(p messaging.Publisher, hold bool) reactor.BatchHandler[event.Event] {
	return func(ctx context.Context, batch []*messaging.Delivery) error {
		errs := make([]error, len(batch))
		failed := make(map[string]bool)
		for rest := 0; rest < len(batch); {
			var events []event.Event
			var index []int
			calling := make(map[string]bool)
			for ; rest < len(batch); rest++ {
				key := messaging.PartitionKey(batch[rest].Value)
				if failed[key] || ctx.Err() != nil {
					errs[rest] = batch[rest].Release(ctx)
					continue
				}
				if calling[key] {
					break
				}
				calling[key] = true
				events, index = append(events, batch[rest].Value), append(index, rest)
			}
			for i, err := range publish(ctx, p, events) {
				errs[index[i]] = err
				if err != nil && (hold || !refused(err)) {
					failed[messaging.PartitionKey(events[i])] = true
				}
			}
		}
		for _, err := range errs {
			if err != nil {
				return &reactor.BatchError{Errors: errs}
			}
		}
		return nil
	}
}

// publish publishes events and returns an error for each, or nil.
func publish(ctx context.Context, p messaging.Publisher, events []event.Event) []error {
	if len(events) == 0 {
		return nil
	}
	err := p.Publish(ctx, events...)
	if err == nil {
		return nil
	}
	if each, ok := errors.AsType[*reactor.BatchError](err); ok && len(each.Errors) == len(events) {
		errs := make([]error, len(events))
		for i, err := range each.Errors {
			errs[i] = verdict(err)
		}
		return errs
	}
	if refused(err) && len(events) > 1 {
		// One refuses them all [PUB-5]: which?
		half := len(events) / 2
		errs := make([]error, len(events))
		copy(errs, publish(ctx, p, events[:half]))
		copy(errs[half:], publish(ctx, p, events[half:]))
		return errs
	}
	errs := make([]error, len(events))
	for i := range errs {
		errs[i] = verdict(err)
	}
	return errs
}

// refused reports whether a broker will never take what it did not take now.
func refused(err error) bool {
	return errors.Is(err, messaging.ErrInvalid) || errors.Is(err, messaging.ErrTooLarge)
}

func verdict(err error) error {
	if err != nil && refused(err) {
		return reactor.Reject(err)
	}
	return err
}
