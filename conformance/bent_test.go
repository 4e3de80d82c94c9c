package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// bent is a broker that works, with some of what it does replaced. A function
// that is nil is not.
type bent struct {
	Broker
	publish   func(ctx context.Context, events []event.Event) error
	subscribe func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error)
	close     func() error

	receive func(ctx context.Context, s *bentSource) (*messaging.Delivery, error)
	deliver func(s *bentSource, d *messaging.Delivery) *messaging.Delivery // changes what was received
	settle  func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error
	extend  func(d *bentDelivery, ctx context.Context) (time.Time, error)
	closing func(s *bentSource) error
	admin   func(messaging.Admin) messaging.Admin // wraps the broker's

	mu sync.Mutex
	// Below: under mu.
	n     map[string]int
	kept  map[string]event.Event
	later map[string]*messaging.Delivery
}

// next counts by key.
func (b *bent) next(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == nil {
		b.n = make(map[string]int)
	}
	b.n[key]++
	return b.n[key]
}

// counted is what next returned last.
func (b *bent) counted(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n[key]
}

// keep returns the first event that was kept under its id.
func (b *bent) keep(ev event.Event) event.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = make(map[string]event.Event)
	}
	if first, ok := b.kept[ev.ID()]; ok {
		return first
	}
	b.kept[ev.ID()] = ev
	return ev
}

func (b *bent) Publish(ctx context.Context, events ...event.Event) error {
	if b.publish != nil {
		return b.publish(ctx, events)
	}
	return b.Broker.Publish(ctx, events...)
}

func (b *bent) Close() error {
	if b.close != nil {
		return b.close()
	}
	return b.Broker.Close()
}

func (b *bent) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	open := b.Broker.Subscribe
	if b.subscribe != nil {
		open = b.subscribe
	}
	src, err := open(ctx, sub, report)
	if err != nil {
		return nil, err
	}
	return &bentSource{Source: src, broker: b, sub: sub, member: b.next("member " + sub.Name), ended: make(chan struct{})}, nil
}

// Unwrap is where AdminOf goes on.
func (b *bent) Unwrap() messaging.Broker {
	a, err := messaging.AdminOf(b.Broker)
	if err != nil || b.admin == nil {
		return b.Broker
	}
	return adminOf{b.Broker, b.admin(a)}
}

type adminOf struct {
	messaging.Broker
	messaging.Admin
}

type bentSource struct {
	messaging.Source
	broker *bent
	sub    messaging.Subscription
	member int // from 1
	ended  chan struct{}
	once   sync.Once

	mu   sync.Mutex
	held []*messaging.Delivery // under mu
}

func (s *bentSource) Receive(ctx context.Context) (*messaging.Delivery, error) {
	b := s.broker
	receive := func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) { return s.Source.Receive(ctx) }
	if b.receive != nil {
		receive = b.receive
	}
	for {
		d, err := receive(ctx, s)
		if err != nil || d == nil {
			return d, err
		}
		s.mu.Lock()
		s.held = append(s.held, d)
		s.mu.Unlock()
		out := reactor.NewDelivery(d.Value, d.Info, d.Deadline(), &bentDelivery{d, s, ctx})
		if b.deliver != nil {
			out = b.deliver(s, out)
		}
		if out == nil {
			d.Ack(ctx)
			continue
		}
		return out, nil
	}
}

func (s *bentSource) Close() error {
	s.once.Do(func() { close(s.ended) })
	if s.broker.closing != nil {
		return s.broker.closing(s)
	}
	return s.Source.Close()
}

type bentDelivery struct {
	inner  *messaging.Delivery
	source *bentSource
	ctx    context.Context // of Receive
}

func (d *bentDelivery) Settle(ctx context.Context, o reactor.Outcome) error {
	if f := d.source.broker.settle; f != nil {
		return f(d, ctx, o)
	}
	return d.inner.Settle(ctx, o)
}

func (d *bentDelivery) Extend(ctx context.Context) (time.Time, error) {
	if f := d.source.broker.extend; f != nil {
		return f(d, ctx)
	}
	return d.inner.Extend(ctx)
}

// settlesInstead replaces one result by another.
func settlesInstead(from, to reactor.Result) func(*bent) {
	return func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if o.Result == from {
				o = reactor.Outcome{Result: to}
			}
			return d.inner.Settle(ctx, o)
		}
	}
}

// delivers changes the event of each delivery.
func delivers(change func(*event.Event)) func(*bent) {
	return func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			change(&d.Value)
			return d
		}
	}
}

// notWhen delivers all but some.
func notWhen(drop func(*bentSource, *messaging.Delivery) bool) func(*bentSource, *messaging.Delivery) *messaging.Delivery {
	return func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
		if drop(s, d) {
			return nil
		}
		return d
	}
}

// tells changes the Info of each delivery.
func tells(change func(*reactor.Info)) func(*bent) {
	return func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			change(&d.Info)
			return d
		}
	}
}

// subscribes changes the settings of each subscription.
func subscribes(change func(*messaging.Subscription)) func(*bent) {
	return func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			change(&sub)
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}
}

// filters selects events by itself.
func filters(match func(pattern, typ string) bool) func(*bent) {
	return func(b *bent) {
		subscribes(func(sub *messaging.Subscription) { sub.Types = nil })(b)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			for _, p := range s.sub.Types {
				if match(p, d.Value.Type()) {
					return d
				}
			}
			if s.sub.Types == nil {
				return d
			}
			return nil
		}
	}
}
