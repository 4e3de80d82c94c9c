package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// A model is what a subscription should do, in the simplest form: a list that
// is searched from its start each time.
type model struct {
	sub     messaging.Subscription
	events  []*modelEvent // all that were published, in their order
	turn    int
	letters []string
}

type modelEvent struct {
	id      string
	state   string // "new", "held", "queued" or "over"
	attempt int
	at      time.Time // of a held one, its deadline; of a queued one, when it is due
	turn    int
	hand    int // counts deliveries, to know a late settle
}

// pass makes happen what happens by itself until now.
func (m *model) pass(now time.Time) {
	for {
		var first *modelEvent
		for _, e := range m.events {
			if e.state == "held" && !e.at.After(now) && (first == nil || e.at.Before(first.at) || e.at.Equal(first.at) && e.turn < first.turn) {
				first = e
			}
		}
		if first == nil {
			return
		}
		m.fail(first, first.at)
	}
}

func (m *model) fail(e *modelEvent, due time.Time) {
	if m.sub.MaxAttempts > 0 && e.attempt >= m.sub.MaxAttempts {
		e.state = "over"
		m.letters = append(m.letters, e.id)
		return
	}
	e.attempt++
	m.queue(e, due)
}

func (m *model) queue(e *modelEvent, due time.Time) {
	m.turn++
	e.state, e.at, e.turn = "queued", due, m.turn
}

// next is what a Receive returns now, or nil.
func (m *model) next(now time.Time) *modelEvent {
	m.pass(now)
	var first, fresh *modelEvent
	out := 0
	for _, e := range m.events {
		switch e.state {
		case "held":
			out++
		case "queued":
			out++
			if !e.at.After(now) && (first == nil || e.at.Before(first.at) || e.at.Equal(first.at) && e.turn < first.turn) {
				first = e
			}
		case "new":
			if fresh == nil {
				fresh = e
			}
		}
	}
	if first == nil && out < m.sub.MaxInFlight {
		first = fresh
	}
	return first
}

// hold hands an event out.
func (m *model) hold(e *modelEvent, now time.Time) {
	m.turn++
	e.hand++
	e.state, e.at, e.turn = "held", now.Add(m.sub.AckWait), m.turn
}

// wait is how long a Receive waits for something, the limit at most.
func (m *model) wait(now time.Time, limit time.Duration) time.Duration {
	for _, e := range m.events {
		if e.state == "held" || e.state == "queued" {
			if d := e.at.Sub(now); d > 0 && d < limit {
				limit = d
			}
		}
	}
	return limit
}

// A handOver is one delivery, and the model's idea of it.
type handOver struct {
	d    *messaging.Delivery
	e    *modelEvent
	hand int
	src  int
	done bool
}

func (h *handOver) live(now time.Time) bool {
	return h.e.state == "held" && h.e.hand == h.hand && h.e.at.After(now)
}

// TestModel runs random schedules on the broker and on the model, and wants
// them to agree in each step: on the event, the attempt, the time, the error.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 2))
				r := &modelRun{t: t, random: random, b: memory.New(nil), m: &model{sub: messaging.Subscription{
					Name: "s", AckWait: time.Duration(1+random.IntN(20)) * time.Second,
					MaxInFlight: 1 + random.IntN(10), MaxAttempts: random.IntN(5),
				}}}
				for range 1 + random.IntN(3) {
					r.sources = append(r.sources, subscribe(t, r.b, r.m.sub))
				}
				for r.step = range 400 {
					r.act()
				}
				letters := subscribe(t, r.b, messaging.Subscription{Name: "letters", DeadLettersOf: "s"})
				r.m.pass(time.Now())
				receiveOrNothing(t, r.sources[0]) // a burial comes with the next Receive [DLQ-1]
				wantIDs(t, letters, r.m.letters...)
			})
		})
	}
}

func receiveOrNothing(t *testing.T, src messaging.Source) {
	t.Helper()
	if d := poll(t, src); d != nil {
		want(t, d.Release(t.Context()))
	}
}

type modelRun struct {
	t       *testing.T
	random  *rand.Rand
	b       *memory.Broker
	m       *model
	sources []messaging.Source
	hands   []*handOver
	step    int
}

func (r *modelRun) act() {
	now := time.Now()
	switch n := r.random.IntN(20); {
	case n < 4:
		id := fmt.Sprint(r.step)
		publish(r.t, r.b, id)
		r.m.events = append(r.m.events, &modelEvent{id: id, state: "new", attempt: 1})
	case n < 9:
		r.receive(0)
	case n < 11:
		r.receive(time.Duration(r.random.IntN(10)) * time.Second)
	case n < 12:
		time.Sleep(time.Duration(r.random.IntN(5000)) * time.Millisecond)
	case n == 12:
		r.reopen(now)
	case len(r.hands) > 0:
		h := r.hands[r.random.IntN(len(r.hands))]
		if r.random.IntN(4) > 0 { // mostly a late one
			h = r.hands[len(r.hands)-1-r.random.IntN(min(4, len(r.hands)))]
		}
		r.settle(h, now)
	}
}

// receive receives, and waits for that long at most.
func (r *modelRun) receive(limit time.Duration) {
	i := r.random.IntN(len(r.sources))
	began := time.Now()
	var waited time.Duration
	e := r.m.next(began)
	for e == nil && waited < limit {
		waited += r.m.wait(began.Add(waited), limit-waited)
		e = r.m.next(began.Add(waited))
	}
	var d *messaging.Delivery
	if limit == 0 {
		d = poll(r.t, r.sources[i])
	} else {
		ctx, cancel := context.WithTimeout(r.t.Context(), limit)
		defer cancel()
		var err error
		d, err = r.sources[i].Receive(ctx)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			r.t.Fatalf("step %d: receive: %v", r.step, err)
		}
	}
	took := time.Since(began)
	if waited == limit && limit > 0 && d == nil && e != nil {
		return // the context ended in the same moment
	}
	switch {
	case e == nil && d != nil:
		r.t.Fatalf("step %d: received %s after %v, want nothing", r.step, d.Value.ID(), took)
	case e == nil:
		return
	case d == nil:
		r.t.Fatalf("step %d: received nothing in %v, want %s after %v", r.step, took, e.id, waited)
	case d.Value.ID() != e.id || d.Info.Attempt != e.attempt || took != waited:
		r.t.Fatalf("step %d: received %s, attempt %d, after %v; want %s, %d, %v", r.step, d.Value.ID(), d.Info.Attempt, took, e.id, e.attempt, waited)
	}
	r.m.hold(e, time.Now())
	r.hands = append(r.hands, &handOver{d: d, e: e, hand: e.hand, src: i})
}

// settle settles or extends a delivery, which may be over long since.
func (r *modelRun) settle(h *handOver, now time.Time) {
	r.m.pass(now)
	var wanted error
	switch {
	case h.done:
		wanted = reactor.ErrSettled
	case !h.live(now):
		wanted = messaging.ErrLost
	}
	var err error
	ctx := r.t.Context()
	after := time.Duration(r.random.IntN(20)-5) * time.Second
	switch kind := r.random.IntN(6); kind {
	case 0:
		_, err = h.d.Extend(ctx)
		if wanted == nil {
			r.m.turn++
			h.e.at, h.e.turn = now.Add(r.m.sub.AckWait), r.m.turn
		}
	case 1:
		if err = h.d.Retry(ctx, after); wanted == nil {
			r.m.fail(h.e, now.Add(max(after, 0)))
		}
	case 2:
		if err = h.d.Reject(ctx, "no"); wanted == nil {
			h.e.state = "over"
			r.m.letters = append(r.m.letters, h.e.id)
		}
	case 3:
		if err = h.d.Release(ctx); wanted == nil {
			r.m.queue(h.e, now)
		}
	default:
		if err = h.d.Ack(ctx); wanted == nil {
			h.e.state = "over"
		}
	}
	h.done = h.done || wanted == nil && h.e.state != "held"
	if !errors.Is(err, wanted) {
		r.t.Fatalf("step %d: settle of %s: %v, want %v", r.step, h.e.id, err, wanted)
	}
}

// reopen closes a member, whose deliveries come back, and opens another.
func (r *modelRun) reopen(now time.Time) {
	i := r.random.IntN(len(r.sources))
	want(r.t, r.sources[i].Close())
	r.m.pass(now)
	for {
		var first *modelEvent
		for _, h := range r.hands {
			if h.src == i && h.live(now) && (first == nil || h.e.at.Before(first.at) || h.e.at.Equal(first.at) && h.e.turn < first.turn) {
				first = h.e
			}
		}
		if first == nil {
			break
		}
		r.m.queue(first, now)
	}
	for _, h := range r.hands {
		if h.src == i {
			h.src = -1
		}
	}
	r.sources[i] = subscribe(r.t, r.b, r.m.sub)
}
