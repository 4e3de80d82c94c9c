package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A service is a handler, the subscription that feeds it, and how many members
// share the work: here in one process, elsewhere on as many machines.
type service struct {
	sub     messaging.Subscription
	members int
	handle  messaging.Handler
	repair  messaging.Handler // of the subscription's dead letters; nil: there are none
	opts    messaging.Options
}

const (
	// How soon an event comes again if the process that had it was killed.
	ackWait = 2 * time.Second

	// The longest pause between two attempts.
	maxBackoff = 250 * time.Millisecond
)

// backoff is short: what fails in this example works the second time.
var backoff = reactor.Exponential(20*time.Millisecond, maxBackoff)

// billing has orders paid.
func billing(p messaging.Publisher) service {
	b := biller{publisher: p}
	return service{
		sub: messaging.Subscription{
			Name:        "billing",
			Types:       []string{"order.placed"},
			AckWait:     ackWait,
			MaxAttempts: 5,
		},
		members: 2,
		handle:  messaging.Typed(b.handle),
		repair:  messaging.Typed(biller{publisher: p, credits: true}.handle),
		opts:    messaging.Options{Concurrency: 4, Backoff: backoff, DrainTimeout: patience},
	}
}

type biller struct {
	publisher messaging.Publisher
	credits   bool // it knows what to do about a negative amount
}

func (b biller) handle(ctx context.Context, e event.Event, o order) error {
	if o.Amount < 0 && !b.credits {
		return reactor.Reject(fmt.Errorf("order %s: amount %d is negative", o.ID, o.Amount))
	}
	paid, err := event.New("/billing", "order.paid."+o.Payment, o)
	if err != nil {
		return reactor.Reject(err)
	}
	// The id follows from the order's. When the handler fails below, it is
	// called again, and publishes again; but what was stored under that id is
	// not stored twice, so nothing is shipped twice.
	paid.SetID("paid " + e.Source() + " " + e.ID())
	if err := b.publisher.Publish(ctx, paid); err != nil {
		return err
	}
	if o.Number%50 == 0 && reactor.InfoFrom(ctx).Attempt == 1 {
		return errors.New("the printer for invoices is out of paper")
	}
	return nil
}

// shipping sends off what is paid, and has a handler for each way to pay. What a
// mux knows is what its subscription selects.
func shipping() service {
	mux := messaging.NewMux(messaging.RejectUnknown)
	mux.Handle("order.paid.card", messaging.Typed(ship))
	mux.Handle("order.paid.>", messaging.Typed(shipLater))
	return service{
		sub: messaging.Subscription{
			Name:        "shipping",
			Types:       mux.Types(),
			AckWait:     ackWait,
			MaxAttempts: 5,
		},
		members: 1,
		handle:  mux.Dispatch,
		repair:  mux.Dispatch,
		opts:    messaging.Options{Concurrency: 2, Backoff: backoff, DrainTimeout: patience},
	}
}

func ship(context.Context, event.Event, order) error { return nil }

// shipLater waits for a lorry now and then, and knows better than a backoff when
// to try again.
func shipLater(ctx context.Context, _ event.Event, o order) error {
	if o.Number%75 == 0 && reactor.InfoFrom(ctx).Attempt == 1 {
		return reactor.RetryAfter(errors.New("no lorry is here"), 50*time.Millisecond)
	}
	return nil
}

// An audit notes everything, in the order in which it was stored. One event is
// out at a time: the ledger needs no mutex, and an event that is retried holds
// up those after it.
type audit struct {
	ledger   map[uint64]string // types, by sequence
	last     uint64            // sequence
	disorder int
}

func newAudit() *audit { return &audit{ledger: make(map[uint64]string)} }

func (a *audit) service() service {
	return service{
		sub:     messaging.Subscription{Name: "audit", AckWait: ackWait, MaxInFlight: 1},
		members: 1,
		handle:  a.handle,
		opts:    messaging.Options{Backoff: backoff, DrainTimeout: patience},
	}
}

func (a *audit) handle(ctx context.Context, e event.Event) error {
	info := reactor.InfoFrom(ctx)
	if info.Sequence%500 == 0 && info.Attempt == 1 {
		return errors.New("the ledger is locked")
	}
	if _, ok := a.ledger[info.Sequence]; ok {
		return nil // a server that crashes may forget an ack, so it comes twice
	}
	if info.Sequence < a.last {
		a.disorder++
	}
	a.last = info.Sequence
	a.ledger[info.Sequence] = e.Type()
	return nil
}

// String says how many events of each type are noted.
func (a *audit) String() string {
	types := make(map[string]int)
	for _, typ := range a.ledger {
		types[typ]++
	}
	notes := []string{fmt.Sprintf("audit has noted %d events", len(a.ledger))}
	for _, typ := range slices.Sorted(maps.Keys(types)) {
		notes = append(notes, fmt.Sprintf("%d %q", types[typ], typ))
	}
	return strings.Join(notes, ", ")
}
