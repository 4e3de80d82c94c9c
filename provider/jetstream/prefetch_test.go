package jetstream_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

func publish(t *testing.T, b *jetstream.Broker, n int, data any) {
	t.Helper()
	events := make([]event.Event, n)
	for i := range events {
		events[i] = makeEvent(t, "a", data)
	}
	if err := b.Publish(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
}

// pending is how many events of a subscription the server has sent and not seen
// settled.
func pending(t *testing.T, b *jetstream.Broker, name string) int {
	t.Helper()
	c, err := b.Consumer(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo().NumAckPending
}

// TestSlowHandler runs a handler that takes a third of AckWait on ten events:
// each is handled once, though most wait for longer than AckWait.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	publish(t, b, 10, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handled tally
	if err := messaging.React(ctx, b, messaging.Subscription{Name: "slow", AckWait: 600 * time.Millisecond}, func(ctx context.Context, e event.Event) error {
		time.Sleep(200 * time.Millisecond) // stands for work
		handled.add(e.ID())
		if handled.len() == 10 {
			cancel()
		}
		return ctx.Err()
	}, nil); err != nil {
		t.Fatal(err)
	}
	if n := handled.repeated(); n > 0 {
		t.Errorf("%d of 10 events were handled again", n)
	}
}

// TestKeptAlive fetches ahead, as a fast member does, and then receives nothing
// for longer than AckWait and Slack.
func TestKeptAlive(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	publish(t, b, 200, nil)
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", AckWait: 500 * time.Millisecond, MaxInFlight: 100}, nil)
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(1)
	receive := func() {
		d, err := src.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Info.Sequence != next || d.Info.Attempt != 1 {
			t.Fatalf("event %d, attempt %d; want event %d, attempt 1", d.Info.Sequence, d.Info.Attempt, next)
		}
		next++
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		receive()
	}
	var held int
	within(t, time.Second, "at most half of MaxInFlight fetched ahead", func() bool {
		held = pending(t, b, "s") // and what the server has not seen acked yet
		return held <= 50
	})
	time.Sleep(2 * time.Second) // longer than the server's AckWait
	for range 100 {
		receive()
	}
	if held < 2 {
		t.Skip("nothing was fetched ahead on this machine, so nothing was shown")
	}
}

// TestSurplus gives a slow member's surplus to a fast one.
func TestSurplus(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	publish(t, b, 300, nil)
	sub := messaging.Subscription{Name: "s", MaxInFlight: 200}
	slow, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // fast, at first
		d, err := slow.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fast, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 199 { // all but the one that waits for the slow member
		d, err := fast.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d.Info.Attempt != 1 {
			t.Errorf("event %d has attempt %d, though nobody has seen it", d.Info.Sequence, d.Info.Attempt)
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseHandsBack closes a member that holds events, received and not.
func TestCloseHandsBack(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	publish(t, b, 100, nil)
	sub := messaging.Subscription{Name: "s", MaxInFlight: 80}
	first, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	var held []*messaging.Delivery
	for range 30 {
		d, err := first.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, d)
	}
	second, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := held[0].Ack(t.Context()); err != messaging.ErrLost {
		t.Errorf("Ack after Close: %v, want ErrLost", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // AckWait is 30 s
	defer cancel()
	began := time.Now()
	for range 100 {
		d, err := second.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d.Info.Attempt != 1 {
			t.Errorf("event %d has attempt %d, want 1", d.Info.Sequence, d.Info.Attempt)
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("another member had all of them after %v", time.Since(began))
}

// TestCloseCountsNothing closes members while an event is on its way to them: it
// was not delivered, so the next member has it as its first attempt.
func TestCloseCountsNothing(t *testing.T) {
	t.Parallel()
	srv := start(t)
	var wg sync.WaitGroup
	for range 16 {
		b := open(t, srv, jetstream.Config{})
		wg.Go(func() {
			for i := range 6 {
				sub := messaging.Subscription{Name: fmt.Sprint("s", i), Start: messaging.StartNew()}
				src, err := b.Subscribe(t.Context(), sub, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if err := b.Publish(t.Context(), makeEvent(t, "a", nil)); err != nil {
					t.Error(err)
					return
				}
				if err := src.Close(); err != nil {
					t.Error(err)
				}
				if src, err = b.Subscribe(t.Context(), sub, nil); err != nil {
					t.Error(err)
					return
				}
				d, err := src.Receive(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if d.Info.Attempt != 1 {
					t.Errorf("attempt %d, want 1", d.Info.Attempt)
				}
				if err := d.Ack(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestLargeEvents lets more bytes wait than a server lets a client fall behind.
func TestLargeEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 80 MB: left out by -short")
	}
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	nc := newLink(t, addr).connect(t, nats.Name("large"))
	b := broker(t, nc, jetstream.Config{})
	for range 10 {
		publish(t, b, 10, bytes.Repeat([]byte{'x'}, 800<<10))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handled tally
	var once sync.Once
	if err := messaging.React(ctx, b, messaging.Subscription{Name: "s"}, func(_ context.Context, e event.Event) error {
		once.Do(func() { time.Sleep(time.Second) }) // lets them pile up
		handled.add(e.ID())
		if handled.len() == 100 {
			cancel()
		}
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	if n := nc.Stats().Reconnects; n > 0 || handled.repeated() > 0 {
		t.Errorf("the connection was cut %d times, %d events were handled again", n, handled.repeated())
	}
}
