package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

// open opens a broker in memory, in a directory that is new.
func open(t *testing.T, opts ledger.Options) *ledger.Broker {
	fs, dir := inMemory(t)
	return openIn(t, fs, dir, opts)
}

// kill opens what a process leaves behind that is killed.
func kill(t *testing.T, b *ledger.Broker, opts ledger.Options) *ledger.Broker {
	fs, dir := killed(t, b, opts)
	return openIn(t, fs, dir, opts)
}

// blackout opens what a machine leaves behind that loses power.
func blackout(t *testing.T, b *ledger.Broker, opts ledger.Options) *ledger.Broker {
	return openIn(t, crash(b.FS(), 0, rand.Uint64()), b.Dir(), opts)
}

// reports collects what a subscription is told.
type reports struct {
	mu   sync.Mutex
	errs []error
}

func (r *reports) report(_ context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *reports) all() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errs
}

func subscribe(t *testing.T, b messaging.Subscriber, sub messaging.Subscription) messaging.Source {
	t.Helper()
	src, err := b.Subscribe(t.Context(), sub, func(_ context.Context, err error) { t.Errorf("reported: %v", err) })
	want(t, err)
	return src
}

// receive returns the next delivery, which must be of that event and attempt.
func receive(t *testing.T, src messaging.Source, id string, attempt int) *messaging.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	d, err := src.Receive(ctx)
	want(t, err)
	if d.Value.ID() != id || d.Info.Attempt != attempt {
		t.Fatalf("received %s, attempt %d, want %s, attempt %d", d.Value.ID(), d.Info.Attempt, id, attempt)
	}
	return d
}

// nothing expects that nothing is received for so long.
func nothing(t *testing.T, src messaging.Source, span time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	if d, err := src.Receive(ctx); err == nil {
		t.Fatalf("received %s, attempt %d, want nothing", d.Value.ID(), d.Info.Attempt)
	}
}

// TestAttemptsAfterKill holds each way in which a delivery can have gone to the
// attempt that comes after the process was killed [RCV-2].
func TestAttemptsAfterKill(t *testing.T) {
	ctx := context.Background()
	for name, tt := range map[string]struct {
		do      func(*messaging.Delivery) error
		attempt int
		after   time.Duration // it must not come before
	}{
		"held":     {func(*messaging.Delivery) error { return nil }, 2, 0},
		"released": {func(d *messaging.Delivery) error { return d.Release(ctx) }, 1, 0},
		"retried":  {func(d *messaging.Delivery) error { return d.Retry(ctx, time.Minute) }, 2, time.Minute},
		"extended": {func(d *messaging.Delivery) error { _, err := d.Extend(ctx); return err }, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, ledger.Options{})
				sub := messaging.Subscription{Name: "s"}
				src := subscribe(t, b, sub)
				publish(t, b, "a", "b")
				want(t, tt.do(receive(t, src, "a", 1)))
				b = kill(t, b, ledger.Options{})
				src = subscribe(t, b, sub)
				if tt.after > 0 {
					want(t, receive(t, src, "b", 1).Ack(ctx))
					nothing(t, src, tt.after-1)
				}
				d := receive(t, src, "a", tt.attempt)
				if tt.after == 0 {
					want(t, receive(t, src, "b", 1).Ack(ctx)) // which nobody had received
				}
				want(t, d.Retry(ctx, time.Minute))

				// A Close gives back, and adds no attempts.
				want(t, b.Close())
				b = openIn(t, b.FS(), b.Dir(), ledger.Options{})
				receive(t, subscribe(t, b, sub), "a", tt.attempt+1)
			})
		})
	}
}

// TestAcksAfterCrash holds acks to what is said of them: without ConfirmedAck a
// crash may undo those of AckDelay, and with it none [ACK-1].
func TestAcksAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range []ledger.Options{{ConfirmedAck: true}, {AckDelay: time.Minute}} {
			b := open(t, opts)
			sub := messaging.Subscription{Name: "s"}
			src := subscribe(t, b, sub)
			publish(t, b, "a")
			want(t, receive(t, src, "a", 1).Ack(t.Context()))
			if !opts.ConfirmedAck {
				time.Sleep(opts.AckDelay)
				synctest.Wait()
			}
			b = blackout(t, b, opts)
			nothing(t, subscribe(t, b, sub), time.Hour)
		}
	})
}

// TestRejectAfterBlackout holds a dead letter to being there, once, after its
// Reject returned [ACK-4, DLQ-3].
func TestRejectAfterBlackout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, ledger.Options{})
		sub, dead := messaging.Subscription{Name: "s"}, messaging.Subscription{Name: "d", DeadLettersOf: "s"}
		src := subscribe(t, b, sub)
		publish(t, b, "a", "b")
		want(t, receive(t, src, "a", 1).Reject(t.Context(), "why"))
		for range 3 {
			b = blackout(t, b, ledger.Options{})
			src = subscribe(t, b, sub)
			want(t, receive(t, src, "b", 1).Release(t.Context()))
			nothing(t, subscribe(t, b, messaging.Subscription{Name: "other", DeadLettersOf: "s"}), 0)
		}
		list := subscribe(t, b, dead)
		d := receive(t, list, "a", 1)
		if letter, ok := messaging.DeadLetterFrom(d.Info); !ok || letter.Reason != "why" || letter.Attempts != 1 || letter.Sequence != 1 {
			t.Errorf("dead letter %+v", letter)
		}
		want(t, d.Ack(t.Context()))
		nothing(t, list, time.Hour)
		want(t, b.Close())
		b = openIn(t, b.FS(), b.Dir(), ledger.Options{})
		all, err := b.Subscriptions(t.Context())
		want(t, err)
		for _, s := range all {
			if s.DeadLetters != 0 {
				t.Errorf("%s has %d dead letters, want none", s.Name, s.DeadLetters)
			}
		}
	})
}

// TestSeekAfterKill holds a Seek to being there after a crash, and what was
// done before to saying nothing any more [ADM-2].
func TestSeekAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, ledger.Options{})
		sub := messaging.Subscription{Name: "s"}
		src := subscribe(t, b, sub)
		publish(t, b, "a", "b", "c")
		for _, id := range []string{"a", "b", "c"} {
			want(t, receive(t, src, id, 1).Retry(t.Context(), time.Minute))
		}
		want(t, b.Seek(t.Context(), sub, messaging.StartFrom(2)))
		b = kill(t, b, ledger.Options{})
		src = subscribe(t, b, sub)
		want(t, receive(t, src, "b", 1).Ack(t.Context()))
		receive(t, src, "c", 1)
		b = kill(t, b, ledger.Options{})
		receive(t, subscribe(t, b, sub), "c", 2)
		_, err := b.Delete(t.Context(), sub)
		want(t, err)
		b = kill(t, b, ledger.Options{})
		src = subscribe(t, b, sub)
		receive(t, src, "a", 1)
	})
}

// TestExpiresAcrossRestarts holds the time without a member to going on while
// the broker is closed, and to beginning with a crash [SUB-10].
func TestExpiresAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, ledger.Options{})
		sub := messaging.Subscription{Name: "s", Expires: time.Hour}
		src := subscribe(t, b, sub)
		publish(t, b, "a")
		want(t, receive(t, src, "a", 1).Ack(t.Context()))
		reopen := func() {
			want(t, b.Close())
			b = openIn(t, b.FS(), b.Dir(), ledger.Options{})
		}
		names := func() (n int) {
			all, err := b.Subscriptions(t.Context())
			want(t, err)
			return len(all)
		}
		reopen()
		time.Sleep(40 * time.Minute)
		reopen()
		time.Sleep(20*time.Minute - 1)
		if names() != 1 {
			t.Fatal("expired too early")
		}
		time.Sleep(time.Nanosecond)
		if names() != 0 {
			t.Fatal("not expired in time")
		}
		subscribe(t, b, sub)
		b = kill(t, b, ledger.Options{})
		time.Sleep(time.Hour - 1)
		if names() != 1 {
			t.Fatal("expired too early after a crash")
		}
		time.Sleep(time.Nanosecond)
		if names() != 0 {
			t.Fatal("not expired in time after a crash")
		}
	})
}

// TestDiscardedAcrossRestarts holds a subscription to being told of what it has
// lost, though the broker was opened again since, and once [RET-3].
func TestDiscardedAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := ledger.Options{MaxEvents: 3, DiscardOldest: true}
		b := open(t, opts)
		for _, sub := range []messaging.Subscription{{Name: "all"}, {Name: "typed", Types: []string{"test"}}, {Name: "none", Types: []string{"other"}}} {
			subscribe(t, b, sub)
		}
		for i := range 8 {
			publish(t, b, fmt.Sprint(i))
		}
		want(t, b.Close())
		b = openIn(t, b.FS(), b.Dir(), opts)
		for name, lost := range map[string]uint64{"all": 5, "typed": 5, "none": 0} {
			var r reports
			sub := messaging.Subscription{Name: name}
			switch name {
			case "typed":
				sub.Types = []string{"test"}
			case "none":
				sub.Types = []string{"other"}
			}
			src, err := b.Subscribe(t.Context(), sub, r.report)
			want(t, err)
			if name != "none" {
				want(t, receive(t, src, "5", 1).Ack(t.Context()))
				want(t, receive(t, src, "6", 1).Ack(t.Context()))
				want(t, receive(t, src, "7", 1).Ack(t.Context()))
			}
			nothing(t, src, time.Hour)
			var told uint64
			for _, err := range r.all() {
				d, ok := errors.AsType[*messaging.DiscardedError](err)
				if !ok {
					t.Fatal(err)
				}
				told += d.Count
			}
			if told != lost {
				t.Errorf("%s was told of %d events, want %d", name, told, lost)
			}
		}
	})
}

// TestMaxAge holds events to going when they are too old, and not before.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, ledger.Options{MaxAge: time.Minute})
		publish(t, b, "a")
		time.Sleep(30 * time.Second)
		publish(t, b, "b")
		time.Sleep(30*time.Second - 1)
		src := subscribe(t, b, messaging.Subscription{Name: "early"})
		receive(t, src, "a", 1)
		time.Sleep(2 * time.Second)
		src = subscribe(t, b, messaging.Subscription{Name: "late"})
		receive(t, src, "b", 1)
	})
}

// TestOneProcess holds a second Open to an error that says who has the
// directory, and to nothing else.
func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	b, err := ledger.Open(dir, nil)
	want(t, err)
	publish(t, b, "a")
	_, err = ledger.Open(dir, nil)
	if err == nil || !strings.Contains(err.Error(), "this process") || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second Open: %v, want one that names the directory and this process", err)
	}
	publish(t, b, "b")
	want(t, b.Close())
	want(t, b.Close())
	wantErr(t, b.Publish(t.Context()), messaging.ErrClosed)
	b, err = ledger.Open(dir, nil)
	want(t, err)
	want(t, b.Close())
}

// TestNewerVersion holds what a newer version wrote to an error that names the
// file, and to being left alone.
func TestNewerVersion(t *testing.T) {
	dir := t.TempDir()
	b, err := ledger.Open(dir, nil)
	want(t, err)
	want(t, b.Close())
	name := dir + "/FORMAT"
	for _, text := range []string{"catchment ledger 2\n", "something else\n", ""} {
		want(t, os.WriteFile(name, []byte(text), 0o644))
		_, err = ledger.Open(dir, nil)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Open of a directory that says %q: %v, want one that names %s", text, err, name)
		}
		got, err := os.ReadFile(name)
		want(t, err)
		if string(got) != text {
			t.Errorf("Open has changed the file to %q", got)
		}
	}
	want(t, os.WriteFile(name, []byte("catchment ledger 1\n"), 0o644))
	b, err = ledger.Open(dir, nil)
	want(t, err)
	want(t, b.Close())
}

// TestBuriedIsNotPending takes the power when an event is in the dead letters, and
// the record that it was received is not on the disk: it is not pending, too [ADM-1].
func TestBuriedIsNotPending(t *testing.T) {
	for name, types := range map[string][]string{"every type": nil, "one type": {"test"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, ledger.Options{})
				sub := messaging.Subscription{Name: "s", Types: types}
				src := subscribe(t, b, sub)
				publish(t, b, "a")
				time.Sleep(time.Second)
				publish(t, b, "b")
				stored := time.Now()
				want(t, receive(t, src, "a", 1).Reject(t.Context(), "why"))
				b = blackout(t, b, ledger.Options{})
				s := status(t, b, "s")
				if s.Pending != 1 || s.InFlight != 0 || s.DeadLetters != 1 || !s.Oldest.Equal(stored) {
					t.Errorf("pending %d, in flight %d, dead letters %d, oldest %v; want 1, 0, 1, %v", s.Pending, s.InFlight, s.DeadLetters, s.Oldest, stored)
				}
				want(t, receive(t, subscribe(t, b, sub), "b", 1).Reject(t.Context(), "why"))
				b = blackout(t, b, ledger.Options{})
				if s := status(t, b, "s"); s.Pending != 0 || s.DeadLetters != 2 || !s.Oldest.IsZero() {
					t.Errorf("pending %d, dead letters %d, oldest %v; want 0, 2, none", s.Pending, s.DeadLetters, s.Oldest)
				}
				if n, err := b.Delete(t.Context(), sub); n != 0 || err != nil {
					t.Errorf("Delete discards %d, %v; want 0", n, err)
				}
			})
		})
	}
}
