package jetstream_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

// TestStuckCallbackOfOthers shares its connection with a callback that is stuck.
func TestStuckCallbackOfOthers(t *testing.T) {
	t.Parallel()
	srv, addr := listen(t, t.TempDir())
	_ = srv
	nc, err := jetstream.Connect("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	if _, err := nc.Subscribe("mine", func(*nats.Msg) { close(entered); <-release }); err != nil {
		t.Fatal(err)
	}
	_ = nc.Publish("mine", nil)
	<-entered
	b := broker(t, nc, jetstream.Config{})
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", AckWait: time.Second, MaxAttempts: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), makeEvent(t, "a", nil)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	d, err := src.Receive(ctx)
	if err != nil {
		all, _ := b.Subscriptions(t.Context())
		t.Fatalf("Receive: %v; %+v", err, all)
	}
	t.Log(d.Info.Attempt)
}

// TestReleaseWhileAway releases while the connection is cut for longer than it waits.
func TestReleaseWhileAway(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", AckWait: 30 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 1, nil)
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.cutOff(t, nc)
	began := time.Now()
	err = d.Release(t.Context())
	t.Logf("Release: %v after %v", err, time.Since(began))
	l.mend(addr)
	within(t, 5*time.Second, "mended", nc.IsConnected)
	if err != nil {
		if err := d.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	d, err = src.Receive(ctx)
	if err != nil {
		t.Fatalf("Release returned nil, but the event is not back 5 s after the outage")
	}
	t.Log(d.Info.Attempt)
}

// TestReleaseTooLate releases over a link that stalls until the lease is over.
func TestReleaseTooLate(t *testing.T) {
	t.Parallel()
	srv, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	sub := messaging.Subscription{Name: "s", AckWait: time.Second}
	src, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 1, nil)
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	onc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer onc.Close()
	other := broker(t, onc, jetstream.Config{})
	l.hold(true) // answers do not come; what is sent does arrive
	released := make(chan error, 1)
	go func() { released <- d.Release(t.Context()) }()
	src2, err := other.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	d2, err := src2.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	t.Logf("the other member has it, attempt %d", d2.Info.Attempt)
	again := make(chan *messaging.Delivery, 1)
	go func() {
		if d, err := src2.Receive(t.Context()); err == nil {
			again <- d
		}
	}()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < 8*time.Second {
		select {
		case d3 := <-again:
			t.Errorf("after %v it is delivered again, attempt %d, while the other member holds it with %v left", time.Since(began), d3.Info.Attempt, time.Until(d2.Deadline()))
			l.hold(false)
			return
		case <-tick.C:
			if _, err := d2.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.hold(false)
}

// TestCloseTooLate closes over a link that stalls until the leases are over: what others have by then stays theirs.
func TestCloseTooLate(t *testing.T) {
	t.Parallel()
	srv, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	sub := messaging.Subscription{Name: "s", AckWait: time.Second}
	src, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 2, nil)
	for range 2 {
		if _, err := src.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	onc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer onc.Close()
	other := broker(t, onc, jetstream.Config{})
	l.hold(true) // answers do not come; what is sent does arrive
	defer l.hold(false)
	go src.Close()
	src2, err := other.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ds []*messaging.Delivery
	for range 2 {
		d2, err := src2.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, d2)
	}
	began := time.Now()
	t.Logf("the other member has them, attempt %d", ds[0].Info.Attempt)
	again := make(chan *messaging.Delivery, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		if d, err := src2.Receive(ctx); err == nil {
			again <- d
		}
	}()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < 8*time.Second {
		select {
		case d3 := <-again:
			t.Errorf("after %v event %d is delivered again, attempt %d, while the other member holds it with %v left", time.Since(began), d3.Info.Sequence, d3.Info.Attempt, time.Until(ds[0].Deadline()))
			return
		case <-tick.C:
			for _, d := range ds {
				if _, err := d.Extend(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestRejectTooLate rejects just before the deadline, over a link that stalls: it ends nothing that somebody else has.
func TestRejectTooLate(t *testing.T) {
	t.Parallel()
	srv, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	sub := messaging.Subscription{Name: "s", AckWait: time.Second}
	src, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 1, nil)
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	onc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer onc.Close()
	other := broker(t, onc, jetstream.Config{})
	src2, err := other.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(d.Deadline()) - 50*time.Millisecond)
	l.hold(true)
	rejected := make(chan error, 1)
	go func() { rejected <- d.Reject(t.Context(), "no") }()
	d2, err := src2.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the other member has it, attempt %d, %v after the deadline", d2.Info.Attempt, time.Since(d.Deadline()))
	l.hold(false)
	t.Log("Reject:", <-rejected, time.Since(d.Deadline()), "after the deadline")
	if err := nc.Flush(); err != nil { // the server has what Reject had to say
		t.Fatal(err)
	}
	if err := d2.Retry(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := src2.Receive(ctx); err != nil {
		t.Errorf("the other member's Retry settled nothing: %v", err)
	}
}

// TestSurplusThatCannotBeNoted cannot note what it gives back: then it keeps it.
func TestSurplusThatCannotBeNoted(t *testing.T) {
	t.Parallel()
	srv := start(t)
	h := harness(srv, jetstream.Config{})
	cb, unbound := h.OpenDeadFull(t)
	b := cb.(*jetstream.Broker)
	sub := messaging.Subscription{Name: "s", MaxAttempts: 2}
	src, err := b.Subscribe(t.Context(), sub, func(context.Context, error) {})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 3000, nil)
	seen := make(map[uint64]bool)
	receive := func(n int) {
		for range n {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			d, err := src.Receive(ctx)
			cancel()
			if err != nil {
				return
			}
			if d.Info.Attempt != 1 && !seen[d.Info.Sequence] {
				t.Errorf("event %d was never received, and has attempt %d", d.Info.Sequence, d.Info.Attempt)
				return
			}
			seen[d.Info.Sequence] = true
			_ = d.Ack(t.Context())
		}
	}
	for range 4 {
		receive(200)
		time.Sleep(2 * time.Second) // nothing is received: there is a surplus
	}
	unbound()
	time.Sleep(11 * time.Second) // the longest pause between two tries to bury is ten
	all, err := b.Subscriptions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d received; %+v", len(seen), all)
	if all[0].DeadLetters > 0 {
		t.Errorf("%d events are dead that nobody received", all[0].DeadLetters)
	}
}

// TestCloseFromReport closes the member in its own report.
func TestCloseFromReport(t *testing.T) {
	t.Parallel()
	srv := start(t)
	h := harness(srv, jetstream.Config{})
	cb, _ := h.OpenDeadFull(t)
	b := cb.(*jetstream.Broker)
	closed := make(chan struct{})
	var src messaging.Source
	var once sync.Once
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, func(context.Context, error) {
		once.Do(func() { _ = src.Close(); close(closed) })
	})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 1, nil)
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Reject(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-closed:
	case <-time.After(12 * time.Second):
		t.Fatal("Close called by the report does not return")
	}
}

// TestRejectedAndClosed closes a member whose dead letter cannot be stored.
func TestRejectedAndClosed(t *testing.T) {
	t.Parallel()
	srv := start(t)
	h := harness(srv, jetstream.Config{})
	cb, _ := h.OpenDeadFull(t)
	b := cb.(*jetstream.Broker)
	sub := messaging.Subscription{Name: "s", MaxAttempts: 1}
	src, err := b.Subscribe(t.Context(), sub, func(context.Context, error) {})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 1, nil)
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Reject(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	_ = src.Close()
	src, err = b.Subscribe(t.Context(), sub, func(context.Context, error) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if d, err := src.Receive(ctx); err == nil {
		t.Errorf("Reject returned nil and MaxAttempts is 1, yet it is delivered again, attempt %d", d.Info.Attempt)
	}
}
