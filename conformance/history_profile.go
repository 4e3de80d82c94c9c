package conformance

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// A profile is a subscription of a workload, and how its members behave.
type profile struct {
	name    string // the end of the subscription's
	sub     messaging.Subscription
	members int
	hands   int  // goroutines that receive and handle, for each member
	late    bool // subscribes when events have been published
	churn   bool // members leave, and others join
	roomy   bool // an AckWait that does not run out while a member works
	odds    odds
	hold    float64 // AckWaits that a handler takes, at most
}

// odds are how many of a hundred deliveries a handler does something else with
// than ack them.
type odds struct{ retry, release, reject, stall, extend, scribble int }

// profiles are the subscriptions of a workload. Each is there for a judge that
// the others give too little to look at.
var profiles = []profile{
	{name: "plain", members: 1, hands: 1, odds: odds{retry: 15, scribble: 10}},
	{name: "strict", members: 1, hands: 2, odds: odds{retry: 15, release: 5, stall: 3}, sub: messaging.Subscription{MaxInFlight: 1}},
	{name: "strict_two", members: 2, hands: 1, churn: true, odds: odds{retry: 10}, sub: messaging.Subscription{MaxInFlight: 1}},
	{name: "window", members: 2, hands: 4, hold: 0.05, odds: odds{retry: 20, stall: 4, scribble: 10}, sub: messaging.Subscription{MaxInFlight: 3}},
	{name: "capped", members: 2, hands: 2, hold: 0.01, odds: odds{retry: 35, release: 5, reject: 10, stall: 8, scribble: 20}, sub: messaging.Subscription{MaxAttempts: 3}},
	{name: "stalls", members: 1, hands: 16, hold: 0.2, odds: odds{retry: 5, stall: 15, extend: 10}},
	{name: "group", members: 3, hands: 1, roomy: true, hold: 0.01, sub: messaging.Subscription{MaxInFlight: 6}},
	{name: "churn", members: 2, hands: 3, roomy: true, churn: true, hold: 0.1, odds: odds{retry: 10, release: 15, scribble: 20}},
	{name: "star", members: 1, hands: 1, sub: messaging.Subscription{Types: []string{"order.*"}}},
	{name: "overlap", members: 1, hands: 2, sub: messaging.Subscription{Types: []string{"order.>", "order.paid", "Order.paid"}}},
	{name: "exact", members: 1, hands: 1, sub: messaging.Subscription{Types: []string{"order"}}},
	{name: "none", members: 1, hands: 1, sub: messaging.Subscription{Types: []string{"orde", "order.paid.now"}}},
	{name: "new", members: 1, hands: 1, late: true, sub: messaging.Subscription{Start: messaging.StartNew()}},
	{name: "first", members: 1, hands: 1, late: true},
	{name: "twin_1", members: 1, hands: 1, roomy: true},
	{name: "twin-1", members: 1, hands: 1, roomy: true},
}

// types are those of the events of a workload: near misses of one another.
var workloadTypes = []string{"order.paid", "order.created", "order", "orders", "Order.paid", "order.item.added", "shipment"}

// A step is what a handler does with a delivery.
type step struct {
	how      kind // to settle it
	stall    bool // past the deadline
	extend   bool // past the first deadline
	scribble bool // over the event
	hold     time.Duration
	after    time.Duration
	reason   string
}

// step decides what a handler does with the n-th delivery of an event. It
// follows from the seed, whoever gets the delivery, and when.
func (p *profile) step(seed uint64, event string, n int, ackWait time.Duration) step {
	r := draw(seed, p.name, event, n)
	s := step{how: opAck, scribble: r.IntN(100) < p.odds.scribble}
	s.hold = time.Duration(p.hold * r.Float64() * float64(ackWait))
	s.after = time.Duration(r.IntN(4)) * ackWait / 8
	s.reason = fmt.Sprintf("%s has failed %d times", event, n)
	roll := r.IntN(100)
	within := func(odds int) bool {
		roll -= odds
		return roll < 0
	}
	poison := p.odds.retry > 0 && draw(seed, p.name, event).IntN(25) == 0
	switch {
	case n > 8 && p.sub.MaxAttempts == 0: // everything has to end
	case poison:
		s.how = opRetry
	case within(p.odds.retry):
		s.how = opRetry
	case within(p.odds.release):
		s.how = opRelease
	case within(p.odds.reject):
		s.how = opReject
	case within(p.odds.stall):
		s.stall, s.how = true, []kind{opAck, opRetry, opRelease, opReject}[r.IntN(4)]
	case within(p.odds.extend):
		s.extend = true
	}
	return s
}

// draw returns a source of numbers that follow from a seed and what they are
// for.
func draw(seed uint64, what ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, what...)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
