// Package model has a subscription in its simplest form, for tests that drive a
// broker at random and want it to agree in each step.
package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A Model is what a subscription should do: a list of events that is searched from
// its start each time. Its methods take the time of the step.
type Model struct {
	Sub       messaging.Subscription
	MaxEvents int      // of the log, which drops the oldest; 0: it drops none
	Events    []*Event // all that were published, in their order
	Position  int      // the first that was not looked at
	Letters   []string // ids of the dead letters
	Lost      uint64   // that were dropped, and not received
	Received  uint64   // that were dropped, but had been received

	turn int
}

// An Event is one that was published, and where it is.
type Event struct {
	ID, Type string
	Attempt  int
	At       time.Time // of a held one, its deadline; of a queued one, when it is due

	number int // in Events
	state  state
	turn   int
	hand   int // counts deliveries, to know a late settle
}

type state int

const (
	idle   state = iota // not begun, or over
	held                // with a member
	queued              // until it is due
)

// Queued reports whether the event waits for another delivery, which is due.
func (e *Event) Queued(now time.Time) bool { return e.state == queued && !e.At.After(now) }

func (m *Model) first() int {
	if m.MaxEvents == 0 {
		return 0
	}
	return max(0, len(m.Events)-m.MaxEvents)
}

// Matches reports whether the subscription selects the event.
func (m *Model) Matches(e *Event) bool {
	return len(m.Sub.Types) == 0 || slices.Contains(m.Sub.Types, e.Type)
}

// Publish stores an event.
func (m *Model) Publish(id, typ string) {
	m.Events = append(m.Events, &Event{ID: id, Type: typ, number: len(m.Events)})
	for ; m.Position < m.first(); m.Position++ {
		if m.Matches(m.Events[m.Position]) {
			m.Lost++
		}
	}
}

// earliest is the event of those that is first in time, or nil.
func (m *Model) earliest(of func(*Event) bool) (first *Event) {
	for _, e := range m.Events {
		if of(e) && (first == nil || e.At.Before(first.At) || e.At.Equal(first.At) && e.turn < first.turn) {
			first = e
		}
	}
	return first
}

// Pass makes happen what happens by itself until now.
func (m *Model) Pass(now time.Time) {
	overdue := func(e *Event) bool { return e.state == held && !e.At.After(now) }
	for e := m.earliest(overdue); e != nil; e = m.earliest(overdue) {
		m.fail(e, e.At)
	}
}

func (m *Model) fail(e *Event, due time.Time) {
	if m.Sub.MaxAttempts > 0 && e.Attempt >= m.Sub.MaxAttempts {
		m.bury(e)
		return
	}
	e.Attempt++
	m.queue(e, due)
}

func (m *Model) bury(e *Event) {
	e.state = idle
	m.Letters = append(m.Letters, e.ID)
}

func (m *Model) queue(e *Event, due time.Time) {
	m.turn++
	e.state, e.At, e.turn = queued, due, m.turn
}

// Out is how many events are held or queued.
func (m *Model) Out() (n int) {
	for _, e := range m.Events {
		if e.state != idle {
			n++
		}
	}
	return n
}

// Pending is how many events are yet to be looked at.
func (m *Model) Pending() (n uint64) {
	for _, e := range m.Events[min(m.Position, len(m.Events)):] {
		if m.Matches(e) {
			n++
		}
	}
	return n
}

// Next is what a Receive returns now, or nil.
func (m *Model) Next(now time.Time) *Event {
	m.Pass(now)
	due := func(e *Event) bool { return e.Queued(now) }
	for e := m.earliest(due); e != nil; e = m.earliest(due) {
		if e.number >= m.first() {
			return e
		}
		e.state = idle
		m.Received++
	}
	if m.Out() >= m.Sub.MaxInFlight {
		return nil
	}
	for ; m.Position < len(m.Events); m.Position++ {
		if e := m.Events[m.Position]; m.Matches(e) {
			e.Attempt = 1
			return e
		}
	}
	return nil
}

// Wait is how long a Receive that finds nothing waits for something, the limit at
// most.
func (m *Model) Wait(now time.Time, limit time.Duration) time.Duration {
	for _, e := range m.Events {
		if d := e.At.Sub(now); e.state != idle && d > 0 && d < limit {
			limit = d
		}
	}
	return limit
}

// Hold hands out an event that Next has returned.
func (m *Model) Hold(e *Event, d *messaging.Delivery, now time.Time) *Delivery {
	if e.state == idle {
		m.Position = e.number + 1
	}
	m.turn++
	e.hand++
	e.state, e.At, e.turn = held, now.Add(m.Sub.AckWait), m.turn
	return &Delivery{Event: e, delivery: d, hand: e.hand}
}

// Close gives back what one of several members has.
func (m *Model) Close(deliveries []*Delivery, now time.Time) {
	m.Pass(now)
	its := func(e *Event) bool {
		return slices.ContainsFunc(deliveries, func(d *Delivery) bool { return d.Event == e && d.live(now) })
	}
	for e := m.earliest(its); e != nil; e = m.earliest(its) {
		m.queue(e, now)
	}
}

// Restart opens the broker anew, which was closed or killed.
func (m *Model) Restart(now time.Time, killed bool) {
	if !killed {
		m.Pass(now)
	}
	for _, e := range m.Events {
		switch {
		case e.state == held && killed:
			m.fail(e, now)
		case e.state == held:
			m.queue(e, now)
		}
	}
	for _, e := range m.Events {
		e.turn = e.number
	}
	m.turn = len(m.Events)
}

// Seek moves the position.
func (m *Model) Seek(to int, now time.Time) {
	m.Pass(now)
	for _, e := range m.Events {
		e.state = idle
	}
	m.Position = max(to, m.first())
}

// A Delivery is one of the broker's, and the model's idea of it.
type Delivery struct {
	Event *Event

	delivery *messaging.Delivery
	hand     int
	done     bool
}

func (d *Delivery) live(now time.Time) bool {
	return d.Event.state == held && d.Event.hand == d.hand && d.Event.At.After(now)
}

// Pick returns one of the deliveries, mostly a late one.
func Pick[D any](random *rand.Rand, deliveries []D) D {
	if random.IntN(4) > 0 {
		return deliveries[len(deliveries)-1-random.IntN(min(4, len(deliveries)))]
	}
	return deliveries[random.IntN(len(deliveries))]
}

// Settle settles or extends a delivery at random, which may be over long since. It
// returns an error unless the broker and the model agree.
func (m *Model) Settle(ctx context.Context, random *rand.Rand, d *Delivery, now time.Time) error {
	m.Pass(now)
	var want error
	switch {
	case d.done:
		want = reactor.ErrSettled
	case !d.live(now):
		want = messaging.ErrLost
	}
	e, agreed := d.Event, want == nil
	after := time.Duration(random.IntN(20)-5) * time.Second
	var err error
	switch random.IntN(6) {
	case 0:
		if _, err = d.delivery.Extend(ctx); agreed {
			m.turn++
			e.At, e.turn = now.Add(m.Sub.AckWait), m.turn
		}
	case 1:
		if err = d.delivery.Retry(ctx, after); agreed {
			m.fail(e, now.Add(max(after, 0)))
		}
	case 2:
		if err = d.delivery.Reject(ctx, "no"); agreed {
			m.bury(e)
		}
	case 3:
		if err = d.delivery.Release(ctx); agreed {
			m.queue(e, now)
		}
	default:
		if err = d.delivery.Ack(ctx); agreed {
			e.state = idle
		}
	}
	d.done = d.done || agreed && e.state != held
	if !errors.Is(err, want) {
		return fmt.Errorf("settle of %s: %v, want %v", e.ID, err, want)
	}
	return nil
}

// Ack acks a delivery that is live.
func (d *Delivery) Ack(ctx context.Context) error {
	d.Event.state = idle
	return d.delivery.Ack(ctx)
}
