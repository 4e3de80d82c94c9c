// Package naive is a first try at a provider: a slice, a map and some mutexes.
// It publishes, delivers, acks and retries, and looks finished. The suite of
// package conformance says what is wrong with it, and the README one folder up
// how that was put right. Do not use it.
package naive

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A Broker keeps its log in a slice.
type Broker struct {
	mu   sync.Mutex
	log  []event.Event
	subs map[string]*subscription
}

// New returns an empty broker.
func New() *Broker {
	return &Broker{subs: make(map[string]*subscription)}
}

// Publish stores the events and hands them to the subscriptions.
func (b *Broker) Publish(ctx context.Context, events ...event.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		b.log = append(b.log, e)
		for _, s := range b.subs {
			s.push(item{event: e})
		}
	}
	return nil
}

// Subscribe opens a member of a subscription.
func (b *Broker) Subscribe(ctx context.Context, sub messaging.Subscription, _ messaging.Report) (messaging.Source, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.subs[sub.Name]
	if !ok {
		s = &subscription{Subscription: sub, wake: make(chan struct{}, 1)}
		b.subs[sub.Name] = s
		if !sub.Start.New() {
			for _, e := range b.log {
				s.push(item{event: e})
			}
		}
	}
	return &source{subscription: s, done: make(chan struct{})}, nil
}

// Close does nothing: there is nothing to close.
func (b *Broker) Close() error { return nil }

// A subscription has a queue of what it has to deliver.
type subscription struct {
	messaging.Subscription
	mu    sync.Mutex
	queue []item
	dead  []item
	wake  chan struct{}
}

type item struct {
	event  event.Event
	failed int // deliveries of it
}

func (s *subscription) push(i item) {
	if len(s.Types) > 0 && !slices.Contains(s.Types, i.event.Type()) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, i)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) pop() (item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return item{}, false
	}
	i := s.queue[0]
	s.queue = s.queue[1:]
	return i, true
}

type source struct {
	*subscription
	done chan struct{}
}

func (s *source) Receive(ctx context.Context) (*messaging.Delivery, error) {
	for ctx.Err() == nil {
		if i, ok := s.pop(); ok {
			info := reactor.Info{Attempt: i.failed + 1, MaxAttempts: s.MaxAttempts}
			return reactor.NewDelivery(i.event, info, time.Now().Add(s.AckWait), &settler{s.subscription, i}), nil
		}
		select {
		case <-s.wake:
		case <-s.done:
			return nil, messaging.ErrClosed
		case <-ctx.Done():
		}
	}
	return nil, ctx.Err()
}

func (s *source) Close() error {
	close(s.done)
	return nil
}

type settler struct {
	*subscription
	item
}

func (s *settler) Settle(_ context.Context, o reactor.Outcome) error {
	switch o.Result {
	case reactor.Retried:
		s.failed++
		time.AfterFunc(o.After, func() { s.push(s.item) })
	case reactor.Rejected:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dead = append(s.dead, s.item)
	case reactor.Released:
		s.push(s.item)
	}
	return nil
}

func (s *settler) Extend(context.Context) (time.Time, error) {
	return time.Now().Add(s.AckWait), nil
}
