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
	"github.com/catchment-events/catchment/provider/internal/model"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestModel runs random schedules on the broker and on the model, and wants
// them to agree in each step: on the event, the attempt, the time, the error.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 2))
				r := &modelRun{t: t, random: random, b: memory.New(nil), m: &model.Model{Sub: messaging.Subscription{
					Name: "s", AckWait: time.Duration(1+random.IntN(20)) * time.Second,
					MaxInFlight: 1 + random.IntN(10), MaxAttempts: random.IntN(5),
				}}}
				for range 1 + random.IntN(3) {
					r.members = append(r.members, subscribe(t, r.b, r.m.Sub))
				}
				for r.step = range 400 {
					r.act()
				}
				letters := subscribe(t, r.b, messaging.Subscription{Name: "letters", DeadLettersOf: "s"})
				r.m.Pass(time.Now())
				receiveOrNothing(t, r.members[0]) // a burial comes with the next Receive [DLQ-1]
				wantIDs(t, letters, r.m.Letters...)
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
	t          *testing.T
	random     *rand.Rand
	b          *memory.Broker
	m          *model.Model
	members    []messaging.Source
	deliveries []*model.Delivery
	of         []messaging.Source // of each delivery, who has it
	step       int
}

func (r *modelRun) act() {
	switch n := r.random.IntN(20); {
	case n < 4:
		id := fmt.Sprint(r.step)
		publish(r.t, r.b, id)
		r.m.Publish(id, "")
	case n < 9:
		r.receive(0)
	case n < 11:
		r.receive(time.Duration(r.random.IntN(10)) * time.Second)
	case n < 12:
		time.Sleep(time.Duration(r.random.IntN(5000)) * time.Millisecond)
	case n == 12:
		r.reopen()
	case len(r.deliveries) > 0:
		if err := r.m.Settle(r.t.Context(), r.random, model.Pick(r.random, r.deliveries), time.Now()); err != nil {
			r.t.Fatalf("step %d: %v", r.step, err)
		}
	}
}

// receive receives, and waits for that long at most.
func (r *modelRun) receive(limit time.Duration) {
	src := r.members[r.random.IntN(len(r.members))]
	began := time.Now()
	var waited time.Duration
	e := r.m.Next(began)
	for e == nil && waited < limit {
		waited += r.m.Wait(began.Add(waited), limit-waited)
		e = r.m.Next(began.Add(waited))
	}
	var d *messaging.Delivery
	if limit == 0 {
		d = poll(r.t, src)
	} else {
		ctx, cancel := context.WithTimeout(r.t.Context(), limit)
		defer cancel()
		var err error
		d, err = src.Receive(ctx)
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
		r.t.Fatalf("step %d: received nothing in %v, want %s after %v", r.step, took, e.ID, waited)
	case d.Value.ID() != e.ID || d.Info.Attempt != e.Attempt || took != waited:
		r.t.Fatalf("step %d: received %s, attempt %d, after %v; want %s, %d, %v", r.step, d.Value.ID(), d.Info.Attempt, took, e.ID, e.Attempt, waited)
	}
	r.deliveries = append(r.deliveries, r.m.Hold(e, d, time.Now()))
	r.of = append(r.of, src)
}

// reopen closes a member, whose deliveries come back, and opens another.
func (r *modelRun) reopen() {
	i := r.random.IntN(len(r.members))
	var its []*model.Delivery
	for j, d := range r.deliveries {
		if r.of[j] == r.members[i] {
			its = append(its, d)
		}
	}
	want(r.t, r.members[i].Close())
	r.m.Close(its, time.Now())
	r.members[i] = subscribe(r.t, r.b, r.m.Sub)
}
