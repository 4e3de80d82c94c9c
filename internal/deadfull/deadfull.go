// Package deadfull is for the harnesses of providers that bound their dead letters:
// it makes a broker whose bound is one into one that has no room for any.
package deadfull

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// A Bounded broker keeps one dead letter for each subscription.
type Bounded interface {
	messaging.Broker
	messaging.Admin
	io.Closer
}

// A Broker puts a dead letter of its own into each new subscription, which fills its
// dead letters until Room is called.
type Broker struct {
	Bounded
	mu     sync.Mutex
	filled []string // under mu
}

// Subscribe implements [messaging.Subscriber].
func (b *Broker) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	if sub.DeadLettersOf == "" {
		if _, err := b.Undecodable(ctx, sub.Name); err != nil { // there is none by that name
			if err := b.fill(ctx, sub); err != nil {
				return nil, err
			}
		}
	}
	return b.Bounded.Subscribe(ctx, sub, report)
}

func (b *Broker) fill(ctx context.Context, sub messaging.Subscription) error {
	src, err := b.Bounded.Subscribe(ctx, sub, nil)
	if err != nil {
		return err
	}
	defer src.Close()
	filler, err := event.New("/filler", "filler", nil)
	if err != nil {
		return err
	}
	if err := b.Publish(ctx, filler); err != nil {
		return err
	}
	d, err := src.Receive(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filled = append(b.filled, sub.Name)
	return d.Reject(ctx, "to fill the dead letters")
}

// Room makes room for dead letters.
func (b *Broker) Room(ctx context.Context) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.filled {
		_, e := b.DeleteDeadLetters(ctx, name)
		err = errors.Join(err, e)
	}
	return err
}
