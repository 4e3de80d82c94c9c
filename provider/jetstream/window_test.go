package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/provider/jetstream"
)

// arrivals watches what events reach a server, over a connection of its own.
func arrivals(t *testing.T, addr string) *nats.Subscription {
	t.Helper()
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s, err := nc.SubscribeSync("catchment.>")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SetPendingLimits(-1, -1)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

// arrive waits until n events have come.
func arrive(t *testing.T, s *nats.Subscription, n int) {
	t.Helper()
	for range n {
		if _, err := s.NextMsg(5 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnswersLostFreeTheWindow loses the answers that hold all of the window: it is free again after the reconnect.
func TestAnswersLostFreeTheWindow(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{MaxPending: 4})
	arrived := arrivals(t, addr)
	l.hold(true)
	events := make([]event.Event, 8)
	for i := range events {
		events[i] = makeEvent(t, "a", i)
	}
	published := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	go func() { published <- b.Publish(ctx, events...) }()
	arrive(t, arrived, 4) // which have no answer
	l.cut()
	l.hold(false)
	l.mend(addr)
	within(t, 5*time.Second, "reconnect", nc.IsConnected)
	began := time.Now()
	other := make(chan error, 1)
	go func() { other <- b.Publish(ctx, makeEvent(t, "b", nil)) }()
	t.Log("other caller:", <-other, time.Since(began))
	err := <-published
	if err != nil {
		t.Errorf("Publish: %v after %v on a good connection", err, time.Since(began))
	}
}

// TestPublishDuringClose closes the broker under a Publish that waits for an answer: it returns.
func TestPublishDuringClose(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{})
	arrived := arrivals(t, addr)
	l.hold(true)
	published := make(chan error, 1)
	go func() { published <- b.Publish(context.Background(), makeEvent(t, "a", nil)) }()
	arrive(t, arrived, 1)
	_ = b.Close()
	l.hold(false)
	select {
	case err := <-published:
		t.Log(err)
	case <-time.After(10 * time.Second):
		t.Error("Publish has not returned 10 s after Close")
	}
}

// TestSlowAnswersAreNotMissed has answers come late, but come: nothing is sent again.
func TestSlowAnswersAreNotMissed(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{MaxPending: 64})
	arrived := arrivals(t, addr)
	// Answers come 100 ms late.
	done := make(chan struct{})
	go func() {
		for {
			l.hold(true)
			select {
			case <-done:
				l.hold(false)
				return
			case <-time.After(100 * time.Millisecond):
			}
			l.hold(false)
			time.Sleep(time.Millisecond) // for what was held back to pass
		}
	}()
	events := make([]event.Event, 6000)
	for i := range events {
		events[i] = makeEvent(t, "a", i)
	}
	began := time.Now()
	if err := b.Publish(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	close(done)
	if err := b.Publish(t.Context(), makeEvent(t, "fence", nil)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		m, err := arrived.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == "catchment.fence" { // what was sent again came before
			break
		}
	}
	t.Logf("%d messages for 6000 events in %v", n, took)
	if n > 6000 {
		t.Errorf("%d sent again although answers kept coming", n-6000)
	}
}
