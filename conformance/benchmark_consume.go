package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// speedName is the subscription of benchmarks that need one.
const speedName = "speed"

func benchmarkStream(b *testing.B, h Harness, bytes int) {
	for _, batch := range []int{1, 100} {
		measured(b, h, fmt.Sprintf("batch=%d", batch), bytes, func(s *speed) {
			s.rounds(1000, mostEvents(bytes), func(broker Broker, n int) {
				sources := s.subscribe(broker, 1, messaging.Subscription{Name: speedName})
				events := s.feed.fill(n)
				s.measure(n, func() {
					published := make(chan error, 1)
					go func() { published <- publishBatches(s.ctx, broker, events, batch) }()
					s.ok(drain(s.ctx, sources, n, ack), "consume")
					s.ok(<-published, "publish")
				})
			})
		})
	}
	measured(b, h, "react", bytes, func(s *speed) {
		s.rounds(1000, mostEvents(bytes), func(broker Broker, n int) {
			r := s.react(broker, n)
			events := s.feed.fill(n)
			s.measure(n, func() {
				s.ok(publishBatches(s.ctx, broker, events, 1), "publish")
				s.ok(r.handled(s.ctx), "handle")
			})
			s.ok(r.stop(), "react")
		})
	})
}

func benchmarkConsume(b *testing.B, h Harness, bytes int) {
	for _, members := range []int{1, 4} {
		measured(b, h, fmt.Sprintf("members=%d", members), bytes, func(s *speed) {
			s.rounds(1000, mostEvents(bytes), func(broker Broker, n int) {
				s.ok(publishBatches(s.ctx, broker, s.feed.fill(n), ringSize), "publish")
				s.measure(n, func() {
					sources := s.subscribe(broker, members, messaging.Subscription{Name: speedName})
					s.ok(drain(s.ctx, sources, n, ack), "consume")
				})
			})
		})
	}
}

// benchmarkRedelivery consumes what was stored before, and fails every tenth
// event at its first attempt.
func benchmarkRedelivery(b *testing.B, h Harness) {
	measured(b, h, "failed=10%", smallData, func(s *speed) {
		s.rounds(1000, mostEvents(smallData), func(broker Broker, n int) {
			s.ok(publishBatches(s.ctx, broker, s.feed.fill(n), ringSize), "publish")
			var first atomic.Int64
			s.measure(n, func() {
				sources := s.subscribe(broker, 1, messaging.Subscription{Name: speedName})
				s.ok(drain(s.ctx, sources, n, func(ctx context.Context, d *messaging.Delivery) (bool, error) {
					if d.Info.Attempt == 1 && first.Add(1)%10 == 0 {
						return false, d.Retry(ctx, 0)
					}
					return true, d.Ack(ctx)
				}), "consume")
			})
		})
	})
}

// benchmarkFilter consumes what was stored before, through Types. Its events are
// those in the log, selected or not.
func benchmarkFilter(b *testing.B, h Harness) {
	many := make([]string, messaging.MaxTypes)
	for i := range many {
		many[i] = fmt.Sprintf("speed.other%d.>", i)
	}
	many[len(many)/2] = "speed.order.*"
	for _, c := range []struct {
		name  string
		types []string
		one   int // event in so many is selected
	}{
		{"none", nil, 1},
		{"types=1", []string{speedType}, 1},
		{fmt.Sprintf("types=%d", len(many)), many, 1},
		{"selects=1%", []string{"speed.rare"}, 100},
	} {
		measured(b, h, c.name, smallData, func(s *speed) {
			for i := c.one - 1; c.one > 1 && i < ringSize; i += c.one {
				s.feed.ring[i].SetType("speed.rare")
			}
			s.rounds(1000, mostEvents(smallData), func(broker Broker, n int) {
				s.ok(publishBatches(s.ctx, broker, s.feed.fill(n), ringSize), "publish")
				s.measure(n, func() {
					sources := s.subscribe(broker, 1, messaging.Subscription{Name: speedName, Types: c.types})
					s.ok(drain(s.ctx, sources, n/c.one, ack), "consume")
				})
			})
		})
	}
}

// subscribe opens members of a subscription, which last as long as the broker.
func (s *speed) subscribe(broker Broker, members int, sub messaging.Subscription) []messaging.Source {
	sources := make([]messaging.Source, members)
	for i := range sources {
		src, err := broker.Subscribe(s.ctx, sub, nil)
		s.ok(err, "subscribe")
		sources[i] = src
	}
	return sources
}

// ack settles a delivery, and says that its event is done.
func ack(ctx context.Context, d *messaging.Delivery) (done bool, err error) {
	return true, d.Ack(ctx)
}

// drain receives by all members until n events are done.
func drain(ctx context.Context, sources []messaging.Source, n int, settle func(context.Context, *messaging.Delivery) (bool, error)) error {
	if len(sources) == 1 { // no goroutine, and no count that others change
		for n > 0 {
			d, err := sources[0].Receive(ctx)
			if err != nil {
				return err
			}
			done, err := settle(ctx, d)
			if err != nil {
				return err
			}
			if done {
				n--
			}
		}
		return nil
	}
	all, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	enough := errors.New("all events are done")
	var left atomic.Int64
	left.Store(int64(n))
	errs := make(chan error, len(sources))
	for _, src := range sources {
		go func() {
			for {
				d, err := src.Receive(all)
				if err != nil {
					errs <- err
					return
				}
				done, err := settle(ctx, d)
				if err != nil {
					cancel(err)
				} else if done && left.Add(-1) == 0 {
					cancel(enough)
				}
			}
		}()
	}
	for range sources {
		err := <-errs
		cancel(err) // the first cause counts
	}
	if err := context.Cause(all); !errors.Is(err, enough) {
		return err
	}
	return nil
}

// A reaction is a React at work.
type reaction struct {
	cancel context.CancelFunc
	all    chan struct{} // closed when n events are handled
	ended  chan error
}

// react starts a reactor that counts n events.
func (s *speed) react(broker Broker, n int) *reaction {
	src := s.subscribe(broker, 1, messaging.Subscription{Name: speedName})[0] // it exists from here on
	ctx, cancel := context.WithCancel(s.ctx)
	r := &reaction{cancel: cancel, all: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		r.ended <- messaging.React(ctx, broker, messaging.Subscription{Name: speedName}, func(context.Context, event.Event) error {
			if n--; n == 0 {
				close(r.all)
			}
			return nil
		}, nil)
	}()
	s.ok(src.Close(), "close")
	return r
}

// handled waits until all events are.
func (r *reaction) handled(ctx context.Context) error {
	select {
	case <-r.all:
		return nil
	case err := <-r.ended:
		r.ended <- err
		return fmt.Errorf("the reactor has ended early: %w", errors.Join(err, ctx.Err()))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the reactor.
func (r *reaction) stop() error {
	r.cancel()
	return <-r.ended
}
