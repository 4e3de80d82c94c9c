package jetstream_test

import (
	"context"
	"errors"
	"fmt"
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
	l.cutOff(t, nc)
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
	l.cutOff(t, nc)
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

// TestUpdateBesideSeek has neither undo the other [ADM-4].
func TestUpdateBesideSeek(t *testing.T) {
	t.Parallel()
	srv := start(t)
	b, c := open(t, srv, jetstream.Config{Stream: "update-seek"}), open(t, srv, jetstream.Config{Stream: "update-seek"})
	sub := messaging.Subscription{Name: "s"}
	subscribe(t, b, sub)
	for i := 1; i <= 60; i++ {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.Seek(t.Context(), sub, messaging.StartFirst()); err != nil {
				t.Errorf("Seek: %v", err)
			}
		})
		wg.Go(func() {
			sub := sub
			sub.MaxAttempts = i
			if err := c.Update(t.Context(), sub); err != nil {
				t.Errorf("Update: %v", err)
			}
		})
		wg.Wait()
		all, err := b.Subscriptions(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%d subscriptions, %v", len(all), err)
		}
		if all[0].MaxAttempts != i {
			t.Fatalf("Update %d and Seek returned nil, and MaxAttempts is %d", i, all[0].MaxAttempts)
		}
	}
}

// TestDeleteBesideSeek has a subscription gone that was deleted, and nothing left
// of it [ADM-3].
func TestDeleteBesideSeek(t *testing.T) {
	t.Parallel()
	srv := start(t)
	b, c := open(t, srv, jetstream.Config{Stream: "delete-seek"}), open(t, srv, jetstream.Config{Stream: "delete-seek"})
	for i := range 60 {
		sub := messaging.Subscription{Name: fmt.Sprint("s", i)}
		_ = subscribe(t, b, sub).Close()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.Seek(t.Context(), sub, messaging.StartFirst()); err != nil && !errors.Is(err, messaging.ErrNotFound) {
				t.Errorf("Seek: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := c.Delete(t.Context(), sub); err != nil {
				t.Errorf("Delete: %v", err)
			}
		})
		wg.Wait()
		all, err := b.Subscriptions(t.Context())
		if err != nil || len(all) != 0 {
			t.Fatalf("after Delete: %v, %v", all, err)
		}
	}
	info, err := b.Stream().Info(t.Context())
	if err != nil || info.State.Consumers != 0 {
		t.Errorf("%d consumers are left, %v", info.State.Consumers, err)
	}
}

// TestSeekCutShort ends the context of a Seek before its answer comes: all members
// read from the same place afterwards [SUB-5].
func TestSeekCutShort(t *testing.T) {
	t.Parallel()
	srv, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	operator := broker(t, l.connect(t), jetstream.Config{})
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b := broker(t, nc, jetstream.Config{})
	sub := messaging.Subscription{Name: "s"}
	first := subscribe(t, b, sub)
	l.holdAfter("HPUB catchment_DEAD.current.s ")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := operator.Seek(ctx, sub, messaging.StartFirst()); !errors.Is(err, messaging.ErrUnknown) {
		t.Fatalf("Seek, whose answer is held back: %v", err)
	}
	l.hold(false)
	second := subscribe(t, b, sub)
	within(t, 20*time.Second, "an event that one member has, and not both", func() bool {
		publish(t, b, 1, nil)
		one, two := receiveIn(t, first, time.Second), receiveIn(t, second, time.Second)
		for _, d := range []*messaging.Delivery{one, two} {
			if d != nil {
				_ = d.Ack(t.Context())
			}
		}
		return (one == nil) != (two == nil)
	})
}

// TestUpdateDuringSubscribe updates a subscription whose settings are on their way
// to a new member [ADM-4].
func TestUpdateDuringSubscribe(t *testing.T) {
	t.Parallel()
	srv, addr := listen(t, t.TempDir())
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	other := broker(t, nc, jetstream.Config{})
	sub := messaging.Subscription{Name: "s"}
	subscribe(t, other, sub)
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{})
	l.holdAfter("$JS.API.CONSUMER.INFO.catchment.s ")
	var src messaging.Source
	var wg sync.WaitGroup
	wg.Go(func() { src = subscribe(t, b, sub) })
	within(t, 5*time.Second, "the answer held back", l.keeps)
	updated := sub
	updated.MaxAttempts = 1
	if err := other.Update(t.Context(), updated); err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	l.hold(false)
	wg.Wait()
	within(t, 10*time.Second, "a delivery with the new settings", func() bool {
		publish(t, b, 1, nil)
		d := receive(t, src)
		_ = d.Ack(t.Context())
		return d.Info.MaxAttempts == 1
	})
}

// TestSubscriptionsOverBrokenLink has a list whole, or fail [ADM-1].
func TestSubscriptionsOverBrokenLink(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{})
	for _, name := range []string{"a", "b", "c"} {
		_ = subscribe(t, b, messaging.Subscription{Name: name}).Close()
	}
	l.lose("catchment_DEAD.current.c")
	if all, err := b.Subscriptions(t.Context()); err == nil && len(all) != 3 {
		t.Errorf("%d of 3 subscriptions are listed, without an error", len(all))
	}
}
