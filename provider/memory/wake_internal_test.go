package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// check returns what is wrong with a consumer when nothing moves: nobody may
// be on the way, and nobody may wait while there is something to have, or
// without an alarm for the next thing that becomes due.
func (c *consumer) check(receivers int) error {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	waiters, err := c.line.Check()
	if err != nil {
		return err
	}
	holds := 0
	for h := c.holds.Front(); h != nil; h = h.After() {
		holds++
		if !h.holds() {
			return fmt.Errorf("event %d is on a hold that is not its own", h.item.entry.seq)
		}
		if after := h.After(); after != nil && after.Before(h) {
			return errors.New("the holds are not in the order of their deadlines")
		}
	}
	for _, it := range c.queue {
		if it.hold != nil || !it.out {
			return fmt.Errorf("event %d is in the queue and elsewhere", it.entry.seq)
		}
	}
	now := time.Now()
	queued, fresh := c.ready(now)
	listed := c.waiting.number != 0
	switch {
	case waiters != receivers:
		return fmt.Errorf("%d waiters on the list, want %d", waiters, receivers)
	case listed != (waiters > 0):
		return fmt.Errorf("the log knows of waiters: %v, of %d", listed, waiters)
	case c.out.count != holds+len(c.queue):
		return fmt.Errorf("%d out, but %d held and %d queued", c.out.count, holds, len(c.queue))
	case c.out.count > c.sub.MaxInFlight:
		return fmt.Errorf("%d out, of %d at most", c.out.count, c.sub.MaxInFlight)
	case waiters == 0:
		return nil
	case queued && c.queue[0].dying == 0 || fresh != nil:
		return fmt.Errorf("%d wait, though there is something to have", waiters)
	case c.out.count == 0:
		return nil
	}
	for _, due := range c.dues() {
		if alarm := c.line.Alarm(); alarm.IsZero() || alarm.After(due) {
			return fmt.Errorf("the alarm is set for %v, later than %v", alarm, due)
		}
	}
	return nil
}

// dues are the times at which something happens by itself.
func (c *consumer) dues() (ts []time.Time) {
	if h := c.holds.Front(); h != nil {
		ts = append(ts, h.deadline)
	}
	if len(c.queue) > 0 {
		ts = append(ts, c.queue[0].due)
	}
	return ts
}

// TestWakeUps runs many Receives that come and go against publishes, settles
// and losses that happen at the same moments, and looks at the accounts each
// time that all is quiet.
func TestWakeUps(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wakeUps(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func wakeUps(t *testing.T, random *rand.Rand) {
	const ackWait = 10 * time.Millisecond
	b := New(&Options{MaxDeadLetters: 20})
	sub := messaging.Subscription{Name: "s", AckWait: ackWait, MaxInFlight: 1 + random.IntN(8), MaxAttempts: 3}
	var sources []messaging.Source
	for range 3 {
		src, err := b.Subscribe(t.Context(), sub, func(context.Context, error) {})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, src)
	}
	c := b.consumers[identity{name: "s"}]

	var mu sync.Mutex
	var held []*messaging.Delivery
	receiving := 0
	receive := func(ctx context.Context, src messaging.Source) {
		mu.Lock()
		receiving++
		mu.Unlock()
		d, err := src.Receive(ctx)
		mu.Lock()
		defer mu.Unlock()
		receiving--
		if err == nil {
			held = append(held, d)
		}
	}
	var group sync.WaitGroup
	for step := range 300 {
		// All of these run at once.
		cancels := []context.CancelFunc{}
		for range random.IntN(6) {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			src := sources[random.IntN(len(sources))]
			group.Go(func() { receive(ctx, src) })
		}
		if random.IntN(2) == 0 {
			synctest.Wait() // they wait when the rest begins
		}
		for i := range random.IntN(4) {
			e, err := event.New("/test", "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			e.SetID(fmt.Sprint(step, i))
			group.Go(func() { _ = b.Publish(context.WithoutCancel(t.Context()), e) })
		}
		for _, cancel := range cancels {
			if random.IntN(3) == 0 {
				group.Go(cancel)
			}
		}
		mu.Lock()
		random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		n := random.IntN(len(held) + 1)
		for _, d := range held[:n] {
			kind, after := random.IntN(6), time.Duration(random.IntN(20))*time.Millisecond
			group.Go(func() { settle(d, kind, after) })
		}
		held = held[n:]
		mu.Unlock()
		if random.IntN(20) == 0 {
			i := random.IntN(len(sources))
			old := sources[i]
			group.Go(func() { _ = old.Close() })
			src, err := b.Subscribe(t.Context(), sub, func(context.Context, error) {})
			if err != nil {
				t.Fatal(err)
			}
			sources[i] = src
		}
		time.Sleep(time.Duration(random.IntN(3)) * ackWait / 2)
		synctest.Wait()
		mu.Lock()
		n = receiving
		mu.Unlock()
		if err := c.check(n); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if err := c.check(0); err != nil {
		t.Fatalf("after Close: %v", err)
	}
}

func settle(d *messaging.Delivery, kind int, after time.Duration) {
	ctx := context.Background()
	switch kind {
	case 0:
		_ = d.Retry(ctx, after)
	case 1:
		_ = d.Release(ctx)
	case 2:
		_ = d.Reject(ctx, "no")
	case 3:
		_, _ = d.Extend(ctx)
	default:
		_ = d.Ack(ctx)
	}
}
