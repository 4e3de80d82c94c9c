package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// A ledger knows where each event is.
type ledger struct {
	mu    sync.Mutex
	live  map[string]time.Time // until when a member has it
	acked map[string]int
	left  int
	done  chan struct{} // closed when every event is acked
	wrong []string
}

func newLedger(events int) *ledger {
	return &ledger{live: make(map[string]time.Time), acked: make(map[string]int), left: events, done: make(chan struct{})}
}

func (l *ledger) take(d *messaging.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, now := d.Value.ID(), time.Now()
	if !now.Before(d.Deadline()) {
		return // we were too slow: it may be anywhere
	}
	if l.live[id].After(now) {
		l.wrong = append(l.wrong, id+" is with two members")
	}
	l.live[id] = d.Deadline()
	if l.acked[id] > 0 {
		l.wrong = append(l.wrong, id+" is delivered after its ack")
	}
}

// leave notes that an event is no longer with a member, before the broker
// hears of it: it may be with another at once.
func (l *ledger) leave(d *messaging.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id := d.Value.ID(); l.live[id].Equal(d.Deadline()) {
		delete(l.live, id)
	}
}

func (l *ledger) ack(d *messaging.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[d.Value.ID()]++
	if l.left--; l.left == 0 {
		close(l.done)
	}
}

// TestStress has publishers, members that come and go, and handlers that ack,
// retry, release and stall, all at once on the real clock; run with -race. In
// the end every event is acked, once, and was with one member at a time.
func TestStress(t *testing.T) {
	const publishers, members, each = 4, 6, 250
	b := memory.New(nil)
	sub := messaging.Subscription{Name: "s", AckWait: 50 * time.Millisecond, MaxInFlight: 64}
	l := newLedger(publishers * each)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var group sync.WaitGroup
	for p := range publishers {
		group.Go(func() {
			for i := range each {
				e := newEvent(t, fmt.Sprintf("%d-%d", p, i))
				if err := b.Publish(ctx, e, e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for m := range members {
		random := rand.New(rand.NewPCG(uint64(m), 3))
		group.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-l.done:
					return
				default:
				}
				member(ctx, t, b, sub, l, random)
			}
		})
	}
	group.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 0 {
		t.Errorf("%d wrongs, the first: %s", len(l.wrong), l.wrong[0])
	}
	for id, n := range l.acked {
		if n != 1 {
			t.Errorf("%s was acked %d times", id, n)
		}
	}
	if len(l.acked) != publishers*each {
		t.Errorf("%d events acked, want %d", len(l.acked), publishers*each)
	}
}

// member joins, receives with several goroutines for a while, and leaves.
func member(ctx context.Context, t *testing.T, b *memory.Broker, sub messaging.Subscription, l *ledger, random *rand.Rand) {
	src, err := b.Subscribe(ctx, sub, nil)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	var group sync.WaitGroup
	for range 1 + random.IntN(4) {
		random := rand.New(rand.NewPCG(random.Uint64(), 4))
		rounds := random.IntN(200)
		group.Go(func() {
			for range rounds {
				one(ctx, t, src, l, random)
			}
		})
	}
	group.Wait()
	want(t, src.Close())
}

// one receives one delivery, perhaps, and does something with it.
func one(ctx context.Context, t *testing.T, src messaging.Source, l *ledger, random *rand.Rand) {
	wait, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(3))*time.Millisecond)
	defer cancel()
	d, err := src.Receive(wait)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Errorf("receive: %v", err)
		}
		return
	}
	l.take(d)
	kind := random.IntN(10)
	if kind == 0 { // stall until it is lost; the other side may have it before we look
		l.leave(d)
		time.Sleep(time.Until(d.Deadline()))
		if err := d.Ack(ctx); !errors.Is(err, messaging.ErrLost) {
			t.Errorf("ack past the deadline: %v, want ErrLost", err)
		}
		return
	}
	l.leave(d)
	switch kind {
	case 1:
		err = d.Retry(ctx, time.Duration(random.IntN(3))*time.Millisecond)
	case 2:
		err = d.Release(ctx)
	default:
		if err = d.Ack(ctx); err == nil {
			l.ack(d)
		}
	}
	if err != nil && !errors.Is(err, messaging.ErrLost) {
		t.Errorf("settle: %v", err)
	}
}

// TestStressRun is the same through reactors, whose members come and go: what
// a service sees.
func TestStressRun(t *testing.T) {
	const events, members = 1000, 4
	b := memory.New(nil)
	sub := messaging.Subscription{Name: "s", MaxInFlight: 32}
	var mu sync.Mutex
	handled := make(map[string]int)
	running := make(map[string]bool)
	left := events
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	handle := func(ctx context.Context, e event.Event) error {
		id := e.ID()
		mu.Lock()
		if running[id] {
			t.Errorf("%s is with two handlers", id)
		}
		running[id] = true
		mu.Unlock()
		err := error(nil)
		if rand.IntN(5) == 0 {
			err = reactor.RetryAfter(errors.New("again"), time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		running[id] = false
		if err == nil {
			handled[id]++
			if left--; left == 0 {
				stop()
			}
		}
		return err
	}
	var group sync.WaitGroup
	for range members {
		group.Go(func() {
			for ctx.Err() == nil {
				some, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
				if err := messaging.React(some, b, sub, handle, &messaging.Options{Concurrency: 4}); err != nil && some.Err() == nil {
					t.Errorf("React: %v", err)
				}
				cancel()
			}
		})
	}
	for i := range events {
		want(t, b.Publish(t.Context(), newEvent(t, fmt.Sprint(i))))
	}
	group.Wait()
	for id, n := range handled {
		if n != 1 {
			t.Errorf("%s was handled to its end %d times", id, n)
		}
	}
	if len(handled) != events {
		t.Errorf("%d events were handled, want %d", len(handled), events)
	}
}
