package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
	"github.com/catchment-events/catchment/reactor"
)

// listen starts a server that others can connect to, and returns its address.
func listen(t *testing.T, dir string) (*embedded.Server, string) {
	t.Helper()
	srv, err := embedded.Start(dir, &embedded.Options{SyncInterval: time.Minute, Host: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	return srv, strings.TrimPrefix(srv.URL(), "nats://")
}

// broker returns a broker over a connection of its own.
func broker(t *testing.T, nc *nats.Conn, cfg jetstream.Config) *jetstream.Broker {
	t.Helper()
	b, err := jetstream.New(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func makeEvent(t *testing.T, typ string, data any) event.Event {
	t.Helper()
	e, err := event.New("/test", typ, data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// within waits for a condition that another goroutine brings about.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, d)
		}
	}
}

// A tally counts by event id.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[id]++
}

func (c *tally) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.n)
}

func (c *tally) repeated() (repeated int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		repeated += n - 1
	}
	return repeated
}

// TestOutage takes the server away for 5 s, more than AckWait, under running
// publishers and a running reactor.
func TestOutage(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handled tally
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := messaging.React(ctx, b, messaging.Subscription{Name: "all", AckWait: time.Second}, func(_ context.Context, e event.Event) error {
			handled.add(e.ID())
			return nil
		}, nil); err != nil {
			t.Error(err)
		}
	})
	var published tally
	var publishers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		publishers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				e := makeEvent(t, "a", nil)
				if err := b.Publish(ctx, e); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				published.add(e.ID())
			}
		})
	}
	within(t, 10*time.Second, "events before the outage", func() bool { return handled.len() > 20 })
	for range outageRounds {
		l.cut()
		before := published.len()
		<-time.After(5 * time.Second)
		l.mend(addr)
		within(t, 20*time.Second, "events after the outage", func() bool { return published.len() > before+20 })
	}
	close(stop)
	publishers.Wait()
	within(t, 20*time.Second, "every event that was published", func() bool { return handled.len() >= published.len() })

	info, err := b.Stream().Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := int(info.State.Msgs), published.len(); got != want {
		t.Errorf("%d events are stored of %d that were published", got, want)
	}
	cancel()
	wg.Wait()
	t.Logf("%d events, %d handled again", published.len(), handled.repeated())
}

// TestServerRestart stops the server under a running reactor and starts it
// again, somewhere else.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv, addr := listen(t, dir)
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handled tally
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := messaging.React(ctx, b, messaging.Subscription{Name: "all"}, func(_ context.Context, e event.Event) error {
			handled.add(e.ID())
			return nil
		}, nil); err != nil {
			t.Error(err)
		}
	})
	for round := range restartRounds {
		if err := b.Publish(ctx, makeEvent(t, "a", nil), makeEvent(t, "b", nil)); err != nil {
			t.Fatal(err)
		}
		within(t, 10*time.Second, "the events", func() bool { return handled.len() == 2*(round+1) })
		l.cut()
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
		srv, addr = listen(t, dir)
		l.mend(addr)
	}
	cancel()
	wg.Wait()
}

func TestConsumerDeleted(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%v", away), func(t *testing.T) {
			t.Parallel()
			srv, addr := listen(t, t.TempDir())
			l := newLink(t, addr)
			b := broker(t, l.connect(t), jetstream.Config{})
			src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "gone"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			other, err := srv.Connect()
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			received := make(chan error, 1)
			go func() {
				_, err := src.Receive(context.Background())
				received <- err
			}()
			if away {
				l.cut()
			}
			if err := broker(t, other, jetstream.Config{}).Stream().DeleteConsumer(t.Context(), "gone"); err != nil {
				t.Fatal(err)
			}
			l.mend(addr)
			select {
			case err := <-received:
				if !errors.Is(err, messaging.ErrNotFound) {
					t.Errorf("Receive: %v, want ErrNotFound", err)
				}
			case <-time.After(10 * time.Second):
				t.Error("Receive did not return")
			}
		})
	}
}

// TestPublishUnknown cuts the connection between a publish and its answer.
func TestPublishUnknown(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{})
	l.hold(true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	events := []event.Event{makeEvent(t, "a", nil), makeEvent(t, "b", nil)}
	err := b.Publish(ctx, events...)
	l.hold(false)
	if !errors.Is(err, messaging.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("publish without an answer: %v, want ErrUnknown and the context's error", err)
	}
	batch, ok := errors.AsType[*reactor.BatchError](err)
	if !ok || len(batch.Errors) != 2 {
		t.Errorf("publish of two: %v, want a BatchError of two", err)
	}
	if err := b.Publish(t.Context(), events...); err != nil {
		t.Fatalf("publish again: %v", err)
	}
	info, err := b.Stream().Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != 2 {
		t.Errorf("%d events are stored, want 2", info.State.Msgs)
	}
}

// TestSlowServer gets its answers late, as from a server with a slow disk: what
// is sent again meanwhile is stored once.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{MaxPending: 8})
	events := make([]event.Event, 20)
	for i := range events {
		events[i] = makeEvent(t, "a", i)
	}
	l.hold(true)
	published := make(chan error, 1)
	go func() { published <- b.Publish(context.Background(), events...) }()
	select {
	case err := <-published:
		t.Fatalf("Publish returned before there was an answer: %v", err)
	case <-time.After(3 * time.Second): // more than it waits before it sends again
	}
	l.hold(false)
	select {
	case err := <-published:
		if err != nil {
			t.Errorf("Publish: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Publish did not return")
	}
	info, err := b.Stream().Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := int(info.State.Msgs); got != len(events) {
		t.Errorf("%d events are stored, want %d", got, len(events))
	}
}

// TestPublishCutShort returns the context's error, whatever its cause [PUB-6].
func TestPublishCutShort(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	l.cutOff(t, nc)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("a cause"))
	defer cancel()
	if err := b.Publish(ctx, makeEvent(t, "a", nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Publish: %v, want the context's error", err)
	}
}

// TestPublishNotSent ends the context before anything could be sent: then it is
// known that nothing was stored.
func TestPublishNotSent(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	l.cutOff(t, nc)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := b.Publish(ctx, makeEvent(t, "a", nil))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, messaging.ErrUnknown) {
		t.Errorf("publish while away: %v, want the context's error alone", err)
	}
}

// TestStalledLink holds back an event for longer than the server's AckWait. The
// server has taken it back by then, so nobody is handed it as if it had not.
func TestStalledLink(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{})
	direct, err := jetstream.Connect("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	other := broker(t, direct, jetstream.Config{})
	sub := messaging.Subscription{Name: "s", AckWait: time.Second}
	stalled, err := b.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan *messaging.Delivery, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if d, err := stalled.Receive(ctx); err == nil {
			received <- d
		}
	})
	// Its pull must have reached the server before the link stalls.
	within(t, 5*time.Second, "the pull", func() bool {
		c, err := other.Consumer(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().NumWaiting == 1
	})
	l.hold(true)
	if err := other.Publish(t.Context(), makeEvent(t, "a", nil)); err != nil {
		t.Fatal(err)
	}
	src, err := other.Subscribe(t.Context(), sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := src.Receive(t.Context()) // after the server's AckWait
	if err != nil {
		t.Fatal(err)
	}
	l.hold(false)
	select {
	case <-received:
		t.Error("the member behind the stalled link was handed what somebody else has")
	case <-time.After(500 * time.Millisecond):
	}
	if err := d.Ack(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	wg.Wait()
}
