package memory_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestDeadLetter holds dead letters to the event unchanged and the annotations
// complete, whichever way it died [DLQ-1, DLQ-2].
func TestDeadLetter(t *testing.T) {
	const ackWait = 10 * time.Second
	tests := []struct {
		name   string
		kill   func(t *testing.T, src messaging.Source) (died time.Time)
		reason string
		failed int
	}{
		{"rejected", func(t *testing.T, src messaging.Source) time.Time {
			want(t, receive(t, src, "a", 1).Reject(t.Context(), "no\nsuch customer"))
			return time.Now()
		}, "no such customer", 1},
		{"rejected later", func(t *testing.T, src messaging.Source) time.Time {
			want(t, receive(t, src, "a", 1).Retry(t.Context(), time.Second))
			want(t, receiveAt(t, src, "a", 2, time.Second).Reject(t.Context(), "no"))
			return time.Now()
		}, "no", 2},
		{"retried too often", func(t *testing.T, src messaging.Source) time.Time {
			for attempt := range 3 {
				want(t, receive(t, src, "a", attempt+1).Retry(t.Context(), 0))
			}
			return time.Now()
		}, "", 3},
		{"lost too often", func(t *testing.T, src messaging.Source) time.Time {
			receive(t, src, "a", 1)
			receiveAt(t, src, "a", 2, ackWait)
			receiveAt(t, src, "a", 3, ackWait)
			died := time.Now().Add(ackWait)
			time.Sleep(time.Hour) // nobody looks
			receiveNothing(t, src)
			return died
		}, "not settled within 10s", 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				e := newEvent(t, "a")
				e.SetExtension("note", "ü 100%")
				want(t, e.SetData("application/json", map[string]int{"n": 1}))
				publish(t, b, "before")
				want(t, b.Publish(t.Context(), e))
				stored := time.Now()
				src := subscribe(t, b, messaging.Subscription{Name: "s", AckWait: ackWait, MaxAttempts: 3})
				want(t, receive(t, src, "before", 1).Ack(t.Context()))
				died := test.kill(t, src)
				receiveNothing(t, src)

				letters := subscribe(t, b, messaging.Subscription{Name: "letters", DeadLettersOf: "s"})
				d := receive(t, letters, "a", 1)
				if !event.Equal(d.Value, e) {
					t.Errorf("the dead letter is\n%v\nwant\n%v", d.Value, e)
				}
				got, ok := messaging.DeadLetterFrom(d.Info)
				if !ok {
					t.Fatalf("no annotations in %+v", d.Info)
				}
				letter := messaging.DeadLetter{
					Subscription: "s", Reason: test.reason, Attempts: test.failed, Sequence: 2, Stored: stored, Died: died,
				}
				if diff := cmp.Diff(letter, got); diff != "" {
					t.Errorf("annotations (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestDeadLettersFull holds an event that cannot join the dead letters to its
// place: handed to nobody, tried again, reported, and buried when there is
// room [DLQ-3].
func TestDeadLettersFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxDeadLetters: 1})
		var reports []string
		src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", MaxInFlight: 1, MaxAttempts: 2},
			func(_ context.Context, err error) { reports = append(reports, err.Error()) })
		want(t, err)
		publish(t, b, "a", "b", "c")
		want(t, receive(t, src, "a", 1).Reject(t.Context(), "first"))
		want(t, receive(t, src, "b", 1).Retry(t.Context(), 0))
		want(t, receive(t, src, "b", 2).Retry(t.Context(), 0))

		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *messaging.Delivery, 1)
		go func() {
			d, _ := src.Receive(ctx)
			got <- d
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case d := <-got:
			t.Fatalf("received %s while b cannot be buried", d.Value.ID())
		default:
		}
		// Exponential from 100 ms to 10 s: 7 tries of at most 12.7 s, then of 5 to 10 s.
		if n := len(reports); n < 7+4 || n > 8+12 {
			t.Errorf("%d reports in a minute, want 11 to 20: %q", n, reports)
		}
		for _, report := range reports {
			if !strings.Contains(report, `"s"`) || !strings.Contains(report, "event 2") {
				t.Errorf("reported %q, want the subscription and the event", report)
			}
		}

		letters := subscribe(t, b, messaging.Subscription{Name: "letters", DeadLettersOf: "s"})
		want(t, receive(t, letters, "a", 1).Ack(t.Context()))
		d := receiveAt(t, letters, "b", 1, burialWithin(t, letters))
		if letter, _ := messaging.DeadLetterFrom(d.Info); letter.Attempts != 2 {
			t.Errorf("the dead letter has %d attempts, want 2", letter.Attempts)
		}
		if d := <-got; d == nil || d.Value.ID() != "c" {
			t.Errorf("received %v after the burial, want c", d)
		}
		cancel()
	})
}

// burialWithin waits until a dead letter is there, puts it back, and returns
// zero: at once. It fails the test if that takes more than the longest pause.
func burialWithin(t *testing.T, letters messaging.Source) time.Duration {
	t.Helper()
	began := time.Now()
	d, err := letters.Receive(t.Context())
	want(t, err)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("buried %v after there was room, want 10s at most", took)
	}
	want(t, d.Release(t.Context()))
	return 0
}

// TestDeadLettersOf holds a subscription on dead letters to being a work list:
// an ack removes, a reject or the last failure ends it there and leaves it
// [DLQ-4].
func TestDeadLettersOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		_, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "letters", DeadLettersOf: "s"}, nil)
		wantErr(t, err, messaging.ErrNotFound)
		src := subscribe(t, b, messaging.Subscription{Name: "s", MaxAttempts: 1})
		sub := messaging.Subscription{Name: "s", DeadLettersOf: "s", MaxAttempts: 2} // the same name is another subscription
		letters := subscribe(t, b, sub)
		_, err = b.Subscribe(t.Context(), messaging.Subscription{Name: "x", DeadLettersOf: "letters"}, nil)
		wantErr(t, err, messaging.ErrNotFound) // no nesting

		publish(t, b, "a", "b", "c", "d")
		for _, id := range []string{"a", "b", "c", "d"} {
			want(t, receive(t, src, id, 1).Reject(t.Context(), "no"))
		}
		want(t, receive(t, letters, "a", 1).Ack(t.Context()))
		want(t, receive(t, letters, "b", 1).Reject(t.Context(), "still no"))
		want(t, receive(t, letters, "c", 1).Retry(t.Context(), 0))
		want(t, receive(t, letters, "c", 2).Retry(t.Context(), 0))
		want(t, receive(t, letters, "d", 1).Release(t.Context()))
		want(t, receive(t, letters, "d", 1).Ack(t.Context()))
		receiveNothing(t, letters)
		receiveNothing(t, src)
		again := subscribe(t, b, messaging.Subscription{Name: "again", DeadLettersOf: "s"})
		wantIDs(t, again, "b", "c")
		wantIDs(t, subscribe(t, b, messaging.Subscription{Name: "last", DeadLettersOf: "s"}))
	})
}

// TestDeadLetterWakes holds a Receive that waits for dead letters to waking
// when one comes, of itself too: a loss that another Receive's timer finds.
func TestDeadLetterWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", MaxAttempts: 1, AckWait: 10 * time.Second})
		letters := subscribe(t, b, messaging.Subscription{Name: "letters", DeadLettersOf: "s"})
		publish(t, b, "a")
		receive(t, src, "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = src.Receive(ctx) }()
		receiveAt(t, letters, "a", 1, 10*time.Second)
	})
}

// TestDeadLettersInTheirOrder holds the dead letters to being a log: each is
// stored when it joins, also one that died before and was found late, so that
// StartAt finds the first since then.
func TestDeadLettersInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		sub := messaging.Subscription{Name: "s", MaxAttempts: 1, AckWait: 10 * time.Second}
		src := subscribe(t, b, sub)
		publish(t, b, "a", "b", "c")
		receive(t, src, "a", 1)
		db := receive(t, src, "b", 1)
		time.Sleep(10*time.Second - 1)
		want(t, db.Reject(t.Context(), "no"))
		time.Sleep(time.Minute)
		at := time.Now()
		receive(t, src, "c", 1) // finds a lost
		letters := subscribe(t, b, messaging.Subscription{Name: "l", DeadLettersOf: "s", Start: messaging.StartAt(at)})
		d := receive(t, letters, "a", 1)
		if !d.Info.Stored.Equal(at) {
			t.Errorf("stored %v, want %v", d.Info.Stored, at)
		}
	})
}
