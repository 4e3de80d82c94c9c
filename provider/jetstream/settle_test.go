package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

func noReport(context.Context, error) {}

// subscribe opens a member that is closed with its broker.
func subscribe(t *testing.T, b *jetstream.Broker, sub messaging.Subscription) messaging.Source {
	t.Helper()
	src, err := b.Subscribe(t.Context(), sub, noReport)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// receiveIn receives what comes within a time, or nil.
func receiveIn(t *testing.T, src messaging.Source, d time.Duration) *messaging.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	got, err := src.Receive(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return got
}

// receive receives what is there.
func receive(t *testing.T, src messaging.Source) *messaging.Delivery {
	t.Helper()
	d := receiveIn(t, src, 10*time.Second)
	if d == nil {
		t.Fatal("nothing to receive")
	}
	return d
}

// received has an event be received over a link.
func received(t *testing.T, sub messaging.Subscription) (*link, *nats.Conn, messaging.Source, *messaging.Delivery) {
	t.Helper()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	src := subscribe(t, b, sub)
	publish(t, b, 1, nil)
	return l, nc, src, receive(t, src)
}

// TestSettleAfterContext settles with the context of Receive, which has ended
// [ACK-8].
func TestSettleAfterContext(t *testing.T) {
	t.Parallel()
	for _, confirmed := range []bool{false, true} {
		t.Run(fmt.Sprint("confirmed=", confirmed), func(t *testing.T) {
			b := open(t, start(t), jetstream.Config{ConfirmedAcks: confirmed})
			src := subscribe(t, b, messaging.Subscription{Name: "s"})
			publish(t, b, 2, nil)
			first, second := receive(t, src), receive(t, src)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := first.Reject(ended, "no"); err != nil {
				t.Errorf("Reject: %v", err)
			}
			if err := second.Ack(ended); err != nil {
				t.Errorf("Ack: %v", err)
			}
			dead := subscribe(t, b, messaging.Subscription{Name: "d", DeadLettersOf: "s"})
			if err := receive(t, dead).Ack(ended); err != nil {
				t.Errorf("Ack of a dead letter: %v", err)
			}
		})
	}
}

// TestReleaseNotNoted has a Release fail, for the note that it is no attempt finds
// no room: the event stays with who has it [ACK-6].
func TestReleaseNotNoted(t *testing.T) {
	t.Parallel()
	opened, _ := harness(start(t), jetstream.Config{}).OpenDeadFull(t)
	b := opened.(*jetstream.Broker)
	sub := messaging.Subscription{Name: "s"}
	src := subscribe(t, b, sub)
	publish(t, b, 1, nil)
	d := receive(t, src)
	other := subscribe(t, b, sub)
	if err := d.Release(t.Context()); err == nil {
		t.Fatal("Release wrote its note where there is no room")
	}
	for _, member := range []messaging.Source{other, src} {
		if again := receiveIn(t, member, time.Second); again != nil {
			t.Errorf("Release failed, and the event is delivered again, attempt %d", again.Info.Attempt)
		}
	}
	if err := d.Ack(t.Context()); err != nil {
		t.Errorf("Ack: %v", err)
	}
}

// TestReleaseLost has a Release fail after it was noted: the Retry that follows is
// a failed attempt [RCV-2].
func TestReleaseLost(t *testing.T) {
	t.Parallel()
	l, nc, src, d := received(t, messaging.Subscription{Name: "s"})
	l.lose("-NAK")
	if err := d.Release(t.Context()); err == nil {
		t.Fatal("Release is confirmed, though it was lost")
	}
	within(t, 5*time.Second, "the connection", nc.IsConnected)
	if err := d.Retry(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	d = receive(t, src)
	if d.Info.Attempt != 2 {
		t.Errorf("one delivery failed, and the next is attempt %d", d.Info.Attempt)
	}
	if err := d.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d = receive(t, src); d.Info.Attempt != 2 {
		t.Errorf("it was released, and the next is attempt %d", d.Info.Attempt)
	}
}

// TestExtendDuringOutage has the deadline count from the call of Extend, however
// often it had to ask [ACK-5].
func TestExtendDuringOutage(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	src := subscribe(t, b, messaging.Subscription{Name: "s", AckWait: 10 * time.Second})
	publish(t, b, 1, nil)
	d := receive(t, src)
	l.cutOff(t, nc)
	time.AfterFunc(time.Second, func() { l.mend(addr) })
	began := time.Now()
	deadline, err := d.Extend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := deadline.Sub(began); got > 10*time.Second+500*time.Millisecond {
		t.Errorf("the deadline is %v after the call, with an AckWait of 10s", got)
	}
}

// TestRejectWhileClosing has a Reject that can neither store the dead letter nor
// keep it, for its member closes, say so [ACK-4].
func TestRejectWhileClosing(t *testing.T) {
	t.Parallel()
	l, nc, src, d := received(t, messaging.Subscription{Name: "s"})
	l.cutOff(t, nc)
	rejected := make(chan error, 1)
	go func() { rejected <- d.Reject(t.Context(), "no") }()
	time.Sleep(200 * time.Millisecond) // it is at it, or has not begun: then it is lost
	_ = src.Close()
	if err := <-rejected; err == nil {
		t.Error("Reject returned nil, with nothing stored and nothing kept")
	}
}

// TestClosedBeforeBurial closes a member before it has tried again to store a dead
// letter, for which there is room by now: nobody gets the event [DLQ-1].
func TestClosedBeforeBurial(t *testing.T) {
	t.Parallel()
	for what, settle := range map[string]func(*messaging.Delivery) error{
		"retry":  func(d *messaging.Delivery) error { return d.Retry(t.Context(), 0) },
		"reject": func(d *messaging.Delivery) error { return d.Reject(t.Context(), "no") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			opened, room := harness(start(t), jetstream.Config{}).OpenDeadFull(t)
			b := opened.(*jetstream.Broker)
			sub := messaging.Subscription{Name: "s", MaxAttempts: 1}
			tries := make(chan error, 100)
			src, err := b.Subscribe(t.Context(), sub, func(_ context.Context, err error) { tries <- err })
			if err != nil {
				t.Fatal(err)
			}
			publish(t, b, 1, nil)
			if err := settle(receive(t, src)); err != nil {
				t.Fatal(err)
			}
			for range 4 { // the pause is long by now
				<-tries
			}
			room()
			if err := src.Close(); err != nil {
				t.Fatal(err)
			}
			if d := receiveIn(t, subscribe(t, b, sub), 2*time.Second); d != nil {
				t.Errorf("the only attempt has failed, and it is delivered again, attempt %d", d.Info.Attempt)
			}
			receive(t, subscribe(t, b, messaging.Subscription{Name: "d", DeadLettersOf: "s"}))
		})
	}
}

// TestSlowLink receives over a link whose answers take longer than Slack.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{})
	src := subscribe(t, b, messaging.Subscription{Name: "s"})
	l.slow(jetstream.Slack + 200*time.Millisecond)
	publish(t, b, 1, nil)
	d := receiveIn(t, src, 20*time.Second)
	if d == nil {
		t.Fatal("nothing is received")
	}
	if left := time.Until(d.Deadline()); left > 30*time.Second || left < 20*time.Second {
		t.Errorf("the deadline is in %v, with an AckWait of 30s", left)
	}
}

// TestOrderAfterPause is busy, and then slow, in turns: what the member hands back
// comes again before what is new [RCV-3].
func TestOrderAfterPause(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	b := broker(t, l.connect(t), jetstream.Config{})
	src := subscribe(t, b, messaging.Subscription{Name: "s"})
	publish(t, b, 1200, nil)
	var last uint64
	accept := func() {
		d := receive(t, src)
		if d.Info.Sequence != last+1 {
			t.Errorf("event %d, attempt %d, comes after event %d", d.Info.Sequence, d.Info.Attempt, last)
		}
		last = d.Info.Sequence
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		l.slow(0)
		for range 300 {
			accept()
		}
		l.slow(20 * time.Millisecond) // notes take their time
		for range 60 {
			time.Sleep(20 * time.Millisecond)
			accept()
		}
	}
}
