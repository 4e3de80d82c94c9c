package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// againFaults are those of what is delivered, published or discarded beside much
// else, and of Receives that come and go.
var againFaults = []fault{
	// PUB-1.
	{name: "a Receive that ends wakes nobody", breaks: "PUB-1/as_receives_begin_and_end", wrap: func(b *bent) {
		// One receives at a time; who gets nothing leaves the turn to who comes next.
		var turns, left sync.Map
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			v, _ := turns.LoadOrStore(s, make(chan struct{}, 1))
			turn := v.(chan struct{})
			if first, _ := left.Swap(s, false); first == nil || first.(bool) {
				turn <- struct{}{}
			}
			select {
			case <-turn:
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-s.ended:
				return nil, messaging.ErrClosed
			}
			d, err := s.Source.Receive(ctx)
			if err != nil {
				left.Store(s, true)
				return nil, err
			}
			turn <- struct{}{}
			return d, nil
		}
	}},
	{name: "a Receive that begins during a Publish does not see it", breaks: "PUB-1/as_receives_begin_and_end", wrap: func(b *bent) {
		var publishing atomic.Bool
		b.publish = func(ctx context.Context, events []event.Event) error {
			publishing.Store(true)
			time.Sleep(time.Microsecond) // in a bubble: until all others wait
			publishing.Store(false)
			return b.Broker.Publish(ctx, events...)
		}
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			if publishing.Load() {
				return s.never(ctx)
			}
			return s.Source.Receive(ctx)
		}
	}},

	// PUB-3.
	{name: "remembers a thousand ids", breaks: "PUB-3/many", options: memory.Options{Duplicates: time.Nanosecond}, wrap: func(b *bent) {
		var mu sync.Mutex
		var recent []string
		b.publish = func(ctx context.Context, events []event.Event) error {
			mu.Lock()
			defer mu.Unlock()
			var fresh []event.Event
			for _, ev := range events {
				if !slices.Contains(recent, ev.ID()) {
					fresh, recent = append(fresh, ev), append(recent, ev.ID())
				}
			}
			recent = recent[max(0, len(recent)-1000):]
			return b.Broker.Publish(ctx, fresh...)
		}
	}},

	// RET-3.
	{name: "tells of a thousand at most", breaks: "RET-3/many", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			return b.Broker.Subscribe(ctx, sub, func(ctx context.Context, err error) {
				if d, ok := errors.AsType[*messaging.DiscardedError](err); ok {
					err = &messaging.DiscardedError{Subscription: d.Subscription, Count: min(d.Count, 1000)}
				}
				report.Do(ctx, err)
			})
		}
	}},

	// ACK-3 and ACK-9.
	{name: "what was given back comes last", breaks: "ACK-3/before_a_backlog ACK-9/before_a_backlog", wrap: func(b *bent) {
		var mu sync.Mutex
		var back []*messaging.Delivery
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			info := d.inner.Info
			switch o.Result {
			case reactor.Retried:
				info.Attempt++
			case reactor.Released:
			default:
				return d.inner.Settle(ctx, o)
			}
			mu.Lock()
			defer mu.Unlock()
			back = append(back, reactor.NewDelivery(d.inner.Value, info, d.inner.Deadline(), d.inner))
			return nil
		}
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			mu.Lock()
			n := len(back)
			mu.Unlock()
			if n == 0 {
				return s.Source.Receive(ctx)
			}
			soon, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			d, err := s.Source.Receive(soon)
			if err == nil || ctx.Err() != nil {
				return d, err
			}
			mu.Lock()
			defer mu.Unlock()
			d, back = back[0], back[1:]
			return d, nil
		}
	}},

	// RCV-3.
	{name: "swaps two after a pause", breaks: "RCV-3/after_pauses", wrap: func(b *bent) {
		var mu sync.Mutex
		var swapped *messaging.Delivery
		last := time.Now()
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			mu.Lock()
			d, paused := swapped, time.Since(last) > time.Millisecond
			swapped, last = nil, time.Now()
			mu.Unlock()
			if d != nil {
				return d, nil
			}
			d, err := s.Source.Receive(ctx)
			if err != nil || !paused {
				return d, err
			}
			soon, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			next, err := s.Source.Receive(soon)
			if err != nil {
				return d, nil
			}
			mu.Lock()
			defer mu.Unlock()
			swapped = d
			return next, nil
		}
	}},

	// ACK-8.
	{name: "a settle needs a context that lasts", breaks: "ACK-8/with_a_context_that_has_ended", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return d.inner.Settle(ctx, o)
		}
	}},

	// DLQ-3.
	{name: "a Reject that waits ends with its member", breaks: "DLQ-3/closed_meanwhile", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if o.Result == reactor.Rejected {
				return nil
			}
			return d.inner.Settle(ctx, o)
		}
	}},

	// ADM-3 and ADM-4.
	{name: "a Seek brings back the settings", breaks: "ADM-4/beside_a_seek", wrap: func(b *bent) {
		administers(func(a *bentAdmin) {
			a.seek = func(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
				old := current(ctx, a.Admin, sub)
				time.Sleep(time.Microsecond) // in a bubble: until all others wait
				return errors.Join(a.Admin.Seek(ctx, sub, to), a.Admin.Update(ctx, old))
			}
			a.update = func(ctx context.Context, sub messaging.Subscription) error {
				time.Sleep(time.Nanosecond)
				return a.Admin.Update(ctx, sub)
			}
		})(b)
	}},
	{name: "a Seek brings back the subscription", breaks: "ADM-3/beside_a_seek", wrap: func(b *bent) {
		administers(func(a *bentAdmin) {
			a.seek = func(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
				old := current(ctx, a.Admin, sub)
				time.Sleep(time.Microsecond)
				err := a.Admin.Seek(ctx, sub, to)
				if old.Name == "" || !errors.Is(err, messaging.ErrNotFound) {
					return err
				}
				src, err := b.Broker.Subscribe(ctx, old, nil)
				if err != nil {
					return err
				}
				return src.Close()
			}
			a.delete = func(ctx context.Context, sub messaging.Subscription) (uint64, error) {
				time.Sleep(time.Nanosecond)
				return a.Admin.Delete(ctx, sub)
			}
		})(b)
	}},
}
