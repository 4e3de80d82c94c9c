package jetstream_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

// TestConcurrentSeeks moves a subscription from two brokers at once: one consumer is left.
func TestConcurrentSeeks(t *testing.T) {
	t.Parallel()
	srv := start(t)
	b := open(t, srv, jetstream.Config{Stream: "seek"})
	c := open(t, srv, jetstream.Config{Stream: "seek"})
	if _, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, nil); err != nil {
		t.Fatal(err)
	}
	publish(t, b, 3, nil)
	for range 20 {
		var wg sync.WaitGroup
		for _, x := range []*jetstream.Broker{b, c} {
			wg.Go(func() {
				if err := x.Seek(t.Context(), messaging.Subscription{Name: "s"}, messaging.StartFirst()); err != nil {
					t.Log("seek:", err)
				}
			})
		}
		wg.Wait()
	}
	all, err := b.Subscriptions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Errorf("%d subscriptions are listed, want 1", len(all))
	}
}

// TestSeekWhileSubscribing subscribes, again and again, while the subscription is moved: it is never taken for one that is not there.
func TestSeekWhileSubscribing(t *testing.T) {
	t.Parallel()
	srv := start(t)
	b := open(t, srv, jetstream.Config{Stream: "seek2"})
	c := open(t, srv, jetstream.Config{Stream: "seek2"})
	sub := messaging.Subscription{Name: "s"}
	member, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 10, nil)
	ended := make(chan error, 1)
	go func() {
		for {
			d, err := member.Receive(t.Context())
			if err != nil {
				ended <- err
				return
			}
			_ = d.Ack(t.Context())
		}
	}()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			src, err := c.Subscribe(t.Context(), sub, nil)
			if err != nil {
				t.Log("subscribe:", err)
				continue
			}
			go src.Close()
		}
	})
	for i := range 200 {
		// All is at the end: nothing must be delivered from now on.
		if err := b.Seek(t.Context(), sub, messaging.StartNew()); err != nil {
			t.Errorf("seek %d: %v", i, err)
			break
		}
	}
	close(stop)
	wg.Wait()
	select {
	case err := <-ended:
		t.Errorf("the member ended: %v", err)
	default:
	}
	all, err := b.Subscriptions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Logf("%+v", s)
	}
	if len(all) != 1 {
		t.Errorf("%d subscriptions are listed, want 1", len(all))
	}
	con, err := b.Consumer(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if p := con.CachedInfo().Config.DeliverPolicy; p != natsjs.DeliverNewPolicy {
		t.Errorf("after Seek to new, the subscription is one that starts at %v", p)
	}
}

// TestUpdatedWhileAway changes the settings while a member is cut off: it has the new ones before it hands anything out.
func TestUpdatedWhileAway(t *testing.T) {
	t.Parallel()
	srv, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	sub := messaging.Subscription{Name: "s", AckWait: 20 * time.Second}
	src, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	onc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer onc.Close()
	other := broker(t, onc, jetstream.Config{})
	l.cut()
	within(t, 5*time.Second, "the cut", func() bool { return !nc.IsConnected() })
	sub.AckWait = time.Second
	if err := other.Update(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	l.mend(addr)
	within(t, 5*time.Second, "mended", nc.IsConnected)
	if err := other.Publish(t.Context(), makeEvent(t, "a", nil)); err != nil {
		t.Fatal(err)
	}
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(d.Deadline()); left > 2*time.Second {
		t.Errorf("deadline in %v, want 1s", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	again, err := src.Receive(ctx)
	if err != nil {
		t.Fatalf("the event that was not settled: %v", err)
	}
	if left := time.Until(d.Deadline()); left > 0 {
		t.Errorf("delivered again (attempt %d) while the first has %v left", again.Info.Attempt, left)
	}
	if err := d.Ack(t.Context()); !errors.Is(err, messaging.ErrLost) {
		t.Errorf("late ack of the first: %v, want ErrLost", err)
	}
}

// TestRecreatedWhileAway deletes the subscription and makes another by that name while a member is cut off: that is not its own.
func TestRecreatedWhileAway(t *testing.T) {
	t.Parallel()
	srv, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	sub := messaging.Subscription{Name: "s", AckWait: 20 * time.Second}
	src, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	onc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer onc.Close()
	other := broker(t, onc, jetstream.Config{})
	l.cut()
	within(t, 5*time.Second, "the cut", func() bool { return !nc.IsConnected() })
	if _, err := other.Delete(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	sub.AckWait = time.Second
	sub.MaxAttempts = 1
	src2, err := other.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = src2.Close()
	l.mend(addr)
	within(t, 5*time.Second, "mended", nc.IsConnected)
	if err := other.Publish(t.Context(), makeEvent(t, "a", nil)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	d, err := src.Receive(ctx)
	if !errors.Is(err, messaging.ErrNotFound) {
		t.Errorf("Receive: %v, want ErrNotFound", err)
		if d != nil {
			t.Errorf("deadline in %v with AckWait 1s; MaxAttempts %d, want 1", time.Until(d.Deadline()), d.Info.MaxAttempts)
		}
	}
}
