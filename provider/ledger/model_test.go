package ledger_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/internal/model"
	"github.com/catchment-events/catchment/provider/ledger"
)

// TestModel runs random schedules on the broker and on the model, with restarts,
// kills and changes, and wants them to agree in each step.
func TestModel(t *testing.T) {
	for seed := range uint64(*modelRuns) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 2))
				r := &modelRun{t: t, random: random, m: &model.Model{Sub: messaging.Subscription{Name: "s"}}}
				r.opts.ConfirmedAck = true
				if random.IntN(2) == 0 {
					r.m.MaxEvents = 5 + random.IntN(20)
					r.opts.MaxEvents, r.opts.DiscardOldest = r.m.MaxEvents, true
				}
				if random.IntN(2) == 0 {
					r.opts = r.opts.Rotating(100 + random.IntN(2000))
				}
				r.settings(&r.m.Sub)
				r.b = open(t, r.opts)
				r.join()
				for r.step = range 300 {
					r.act()
				}
				r.finish()
			})
		})
	}
}

type modelRun struct {
	t      *testing.T
	random *rand.Rand
	b      *ledger.Broker
	m      *model.Model
	opts   ledger.Options
	src    messaging.Source
	hands  []*model.Delivery
	step   int
	told   uint64
	least  uint64 // of what is to be told
}

func (r *modelRun) settings(s *messaging.Subscription) {
	s.AckWait = time.Duration(1+r.random.IntN(20)) * time.Second
	s.MaxInFlight = 1 + r.random.IntN(10)
	if r.m.MaxEvents == 0 { // or what is to be buried may be discarded before anybody looks
		s.MaxAttempts = r.random.IntN(5)
	}
	s.Types = [][]string{nil, {"odd"}, {"even"}}[r.random.IntN(3)]
}

func (r *modelRun) join() {
	src, err := r.b.Subscribe(r.t.Context(), r.m.Sub, func(_ context.Context, err error) {
		d, ok := errors.AsType[*messaging.DiscardedError](err)
		if !ok || d.Count == 0 {
			r.t.Errorf("step %d: reported: %v", r.step, err)
			return
		}
		r.told += d.Count
	})
	want(r.t, err)
	r.src = src
}

func (r *modelRun) act() {
	switch n := r.random.IntN(50); {
	case n < 12:
		var events []event.Event
		for i := range 1 + r.random.IntN(3) {
			e := newEvent(r.t, fmt.Sprintf("%d.%d", r.step, i))
			e.SetType([]string{"odd", "even"}[r.random.IntN(2)])
			events = append(events, e)
			r.m.Pass(time.Now())
			r.m.Publish(e.ID(), e.Type())
		}
		want(r.t, r.b.Publish(r.t.Context(), events...))
	case n < 25:
		r.receive()
	case n < 27:
		time.Sleep(time.Duration(r.random.IntN(5000)) * time.Millisecond)
	case n < 29:
		killed := r.random.IntN(2) == 0
		if killed {
			r.b = kill(r.t, r.b, r.opts)
			r.hands = nil // of a broker that is no more, but in this test
		} else {
			want(r.t, r.b.Close())
			r.b = openIn(r.t, r.b.FS(), r.b.Dir(), r.opts)
		}
		r.m.Restart(time.Now(), killed)
		r.join()
	case n == 29:
		to, start := 0, messaging.StartFirst()
		switch r.random.IntN(3) {
		case 0:
			to, start = len(r.m.Events), messaging.StartNew()
		case 1:
			to = r.random.IntN(len(r.m.Events) + 3)
			start = messaging.StartFrom(uint64(to + 1))
		}
		want(r.t, r.b.Seek(r.t.Context(), r.m.Sub, start))
		r.m.Seek(to, time.Now())
		r.least = r.m.Lost // what was not told is of the past
	case n == 30:
		types, attempts := r.m.Sub.Types, r.m.Sub.MaxAttempts
		r.m.Pass(time.Now())
		full := r.m.Out() >= r.m.Sub.MaxInFlight
		r.settings(&r.m.Sub)
		if full {
			r.m.Sub.Types = types // how far the broker has looked is its own affair
		} else {
			for r.m.Position < len(r.m.Events) && types != nil && !slices.Contains(types, r.m.Events[r.m.Position].Type) {
				r.m.Position++
			}
		}
		if attempts == 0 || r.m.Sub.MaxAttempts > 0 && r.m.Sub.MaxAttempts < attempts {
			r.m.Sub.MaxAttempts = attempts
		}
		want(r.t, r.b.Update(r.t.Context(), r.m.Sub))
	case n < 35:
		r.status()
	case len(r.hands) > 0:
		if err := r.m.Settle(r.t.Context(), r.random, model.Pick(r.random, r.hands), time.Now()); err != nil {
			r.t.Fatalf("step %d: %v", r.step, err)
		}
	}
}

func (r *modelRun) status() {
	all, err := r.b.Subscriptions(r.t.Context())
	want(r.t, err)
	r.m.Pass(time.Now())
	s := all[0]
	pending := r.m.Pending()
	if s.Pending != pending || s.InFlight != r.m.Out() || s.DeadLetters != uint64(len(r.m.Letters)) {
		r.t.Fatalf("step %d: pending %d, in flight %d, dead letters %d; want %d, %d, %d", r.step, s.Pending, s.InFlight, s.DeadLetters, pending, r.m.Out(), len(r.m.Letters))
	}
}

func (r *modelRun) receive() *model.Delivery {
	now := time.Now()
	e := r.m.Next(now)
	ctx, cancel := context.WithTimeout(r.t.Context(), 1)
	defer cancel()
	d, err := r.src.Receive(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.t.Fatalf("step %d: receive: %v", r.step, err)
	}
	switch {
	case e == nil && d != nil:
		r.t.Fatalf("step %d: received %s, want nothing", r.step, d.Value.ID())
	case e == nil:
		return nil
	case d == nil:
		r.t.Fatalf("step %d: received nothing, want %s", r.step, e.ID)
	case e.Queued(now) && d.Value.ID() != e.ID:
		// Which of those that are due comes first, a kill may have changed.
		for _, other := range r.m.Events {
			if other.ID == d.Value.ID() && other.Queued(now) {
				e = other
			}
		}
	}
	if d.Value.ID() != e.ID || d.Info.Attempt != e.Attempt {
		r.t.Fatalf("step %d: received %s, attempt %d; want %s, %d", r.step, d.Value.ID(), d.Info.Attempt, e.ID, e.Attempt)
	}
	h := r.m.Hold(e, d, now)
	r.hands = append(r.hands, h)
	return h
}

// finish receives all there is, and looks at what was told, and at the dead letters.
func (r *modelRun) finish() {
	for range 2 * len(r.m.Events) {
		if h := r.receive(); h != nil {
			want(r.t, h.Ack(r.t.Context()))
			continue
		}
		time.Sleep(time.Second)
	}
	least := r.m.Lost - r.least
	if r.told < least || r.told > r.m.Lost+r.m.Received {
		r.t.Errorf("told of %d lost events, want %d to %d", r.told, least, r.m.Lost+r.m.Received)
	}
	letters := subscribe(r.t, r.b, messaging.Subscription{Name: "letters", DeadLettersOf: "s"})
	var got []string
	for range r.m.Letters {
		d, err := letters.Receive(r.t.Context())
		want(r.t, err)
		got = append(got, d.Value.ID())
	}
	nothing(r.t, letters, time.Second)
	slices.Sort(got)
	slices.Sort(r.m.Letters)
	if diff := cmp.Diff(r.m.Letters, got); diff != "" {
		r.t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

var modelRuns = flag.Int("modelruns", 30, "schedules of TestModel")
