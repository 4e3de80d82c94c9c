package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

// told returns how many lost events were reported, and how often.
func told(t testing.TB, r *reports) (n uint64, times int) {
	t.Helper()
	for _, err := range r.all() {
		d, ok := errors.AsType[*messaging.DiscardedError](err)
		if !ok {
			t.Fatal(err)
		}
		n += d.Count
		times++
	}
	return n, times
}

// TestPassedOverIsNotLost discards events that a subscription has looked at, and
// that are not for it: it has lost nothing, also after a restart [RET-3].
func TestPassedOverIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := ledger.Options{MaxEvents: 3, DiscardOldest: true}
		b := open(t, opts)
		sub := messaging.Subscription{Name: "s", Types: []string{"other"}}
		src := subscribe(t, b, sub)
		for i := range 8 {
			publish(t, b, fmt.Sprint(i))
			nothing(t, src, time.Second)
		}
		for name, again := range map[string]func() *ledger.Broker{
			"kill": func() *ledger.Broker { return kill(t, b, opts) },
			"close": func() *ledger.Broker {
				want(t, b.Close())
				return openIn(t, b.FS(), b.Dir(), opts)
			},
		} {
			b = again()
			var r reports
			src, err := b.Subscribe(t.Context(), sub, r.report)
			want(t, err)
			nothing(t, src, time.Second)
			if n, times := told(t, &r); times > 0 {
				t.Errorf("%s: told of %d lost, %d times", name, n, times)
			}
		}
	})
}

// TestUpdateKeepsCountOfLost lets the loss of power take what the journal says of
// events that were discarded before an Update, and not what the row says [RET-3].
func TestUpdateKeepsCountOfLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := ledger.Options{MaxEvents: 3, DiscardOldest: true}
		b := open(t, opts)
		sub := messaging.Subscription{Name: "s"}
		want(t, subscribe(t, b, sub).Close())
		for i := range 8 {
			publish(t, b, fmt.Sprint(i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range 5 {
			publish(t, b, fmt.Sprint(10+i))
		}
		sub.AckWait = time.Minute
		want(t, b.Update(t.Context(), sub))
		b = blackout(t, b, opts)
		var r reports
		src, err := b.Subscribe(t.Context(), sub, r.report)
		want(t, err)
		receive(t, src, "12", 1)
		if n, _ := told(t, &r); n != 10 {
			t.Errorf("told of %d lost, want 10", n)
		}
	})
}

// TestToldOnceAfterKill kills the process long after a subscription was told of what
// it has lost: it is not told again [RET-3].
func TestToldOnceAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := ledger.Options{MaxEvents: 3, DiscardOldest: true}
		b := open(t, opts)
		sub := messaging.Subscription{Name: "s", Types: []string{"test"}}
		want(t, subscribe(t, b, sub).Close())
		for i := range 8 {
			publish(t, b, fmt.Sprint(i))
		}
		var r reports
		src, err := b.Subscribe(t.Context(), sub, r.report)
		want(t, err)
		for i := 5; i < 8; i++ {
			want(t, receive(t, src, fmt.Sprint(i), 1).Ack(t.Context()))
		}
		r = reports{}
		for i := range 4 {
			e := newEvent(t, fmt.Sprint(10+i))
			e.SetType("test")
			want(t, b.Publish(t.Context(), e))
		}
		for i := range 3 {
			e := newEvent(t, fmt.Sprint(20+i))
			e.SetType("other")
			want(t, b.Publish(t.Context(), e))
		}
		time.Sleep(time.Second) // nothing waits to be written any more
		nothing(t, src, time.Hour)
		if n, _ := told(t, &r); n != 4 {
			t.Errorf("told of %d, want 4", n)
		}
		b = kill(t, b, opts)
		src, err = b.Subscribe(t.Context(), sub, r.report)
		want(t, err)
		time.Sleep(time.Second) // nothing waits to be written any more
		nothing(t, src, time.Hour)
		if n, _ := told(t, &r); n != 4 {
			t.Errorf("told of %d after a kill, want 4", n)
		}
	})
}

// TestUpdateWhileDiscarding changes types while events are counted by them.
func TestUpdateWhileDiscarding(t *testing.T) {
	opts := ledger.Options{MaxEvents: 3, DiscardOldest: true}
	b := open(t, opts)
	sub := messaging.Subscription{Name: "s", Types: []string{"test"}}
	subscribe(t, b, sub)
	var work sync.WaitGroup
	work.Go(func() {
		for i := range 300 {
			publish(t, b, fmt.Sprint(i))
		}
	})
	for i := range 300 {
		sub.Types = []string{"test", fmt.Sprint("x", i)}
		want(t, b.Update(t.Context(), sub))
	}
	work.Wait()
}

// TestNothingLostUntold lets calls wait for the disk, one with duplicates: what a
// subscription does not get of them it is told of [RET-3].
func TestNothingLostUntold(t *testing.T) {
	for name, types := range map[string][]string{"every type": nil, "one type": {"test"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := stall(".log")
				opts := ledger.Options{MaxEvents: 4, DiscardOldest: true, Duplicates: time.Hour}
				b := openIn(t, errorfs.Wrap(vfs.NewCrashableMem(), disk), "dir", opts)
				var r reports
				src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", Types: types}, r.report)
				want(t, err)
				publish(t, b, "d1", "d2", "d3")
				for _, id := range []string{"d1", "d2", "d3"} {
					want(t, receive(t, src, id, 1).Ack(t.Context()))
				}
				disk.on.Store(true)
				for _, ids := range [][]string{{"x"}, {"p1", "p2", "p3"}, {"d1", "d2", "d3", "r1", "r2", "r3"}} {
					go publish(t, b, ids...)
					synctest.Wait()
				}
				disk.goOn()
				synctest.Wait()
				got := 0
				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					d, err := src.Receive(ctx)
					cancel()
					if err != nil {
						break
					}
					want(t, d.Ack(t.Context()))
					got++
				}
				if n, _ := told(t, &r); got+int(n) != 7 {
					t.Errorf("received %d, and told of %d, want 7 together", got, n)
				}
			})
		})
	}
}

// TestBuriedIsNotLost discards an event that is in the dead letters, when the loss of
// power has taken the record that it was received, or before: it is not lost [RET-3].
func TestBuriedIsNotLost(t *testing.T) {
	for name, types := range map[string][]string{"every type": nil, "one type": {"test"}} {
		for when, before := range map[string]bool{"discarded before": true, "discarded after": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					opts := ledger.Options{MaxEvents: 2, DiscardOldest: true}
					b := open(t, opts)
					sub := messaging.Subscription{Name: "s", Types: types}
					src := subscribe(t, b, sub)
					publish(t, b, "a")
					want(t, receive(t, src, "a", 1).Reject(t.Context(), "why"))
					if before {
						publish(t, b, "b", "c")
					}
					b = blackout(t, b, opts)
					src = subscribe(t, b, sub) // fails the test if something is reported
					if !before {
						publish(t, b, "b", "c")
					}
					receive(t, src, "b", 1)
				})
			})
		}
	}
}

// TestPassedIsNotLostAfterBlackout takes the power just after what a subscription was
// done with was discarded: it has lost nothing [RET-3].
func TestPassedIsNotLostAfterBlackout(t *testing.T) {
	for name, types := range map[string][]string{"received, every type": nil, "received, one type": {"test"}, "passed over": {"other"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := ledger.Options{MaxEvents: 2, DiscardOldest: true}
				b := open(t, opts)
				sub := messaging.Subscription{Name: "s", Types: types}
				src := subscribe(t, b, sub)
				for i := range 9 {
					publish(t, b, fmt.Sprint(i))
					if name == "passed over" {
						nothing(t, src, time.Second)
					} else {
						want(t, receive(t, src, fmt.Sprint(i), 1).Ack(t.Context()))
					}
				}
				publish(t, b, "a", "b")
				b = blackout(t, b, opts)
				src = subscribe(t, b, sub) // fails the test if something is reported
				if name == "passed over" {
					nothing(t, src, time.Hour)
				} else {
					receive(t, src, "a", 1)
				}
			})
		})
	}
}

// TestRejectOfDiscarded fails an event for good that the log has discarded while it
// was with its member, or waited for room among the dead letters: it stands there, and
// is not reported as lost [ACK-4, DLQ-1].
func TestRejectOfDiscarded(t *testing.T) {
	reject := func(d *messaging.Delivery) error { return d.Reject(context.Background(), "why") }
	for name, fail := range map[string]func(*messaging.Delivery) error{
		"reject": reject,
		"retry":  func(d *messaging.Delivery) error { return d.Retry(context.Background(), 0) },
		"lost":   func(*messaging.Delivery) error { time.Sleep(time.Hour); return nil },
	} {
		for when, early := range map[string]bool{"discarded before": false, "discarded after": true} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := open(t, ledger.Options{MaxEvents: 3, DiscardOldest: true, MaxDeadLetters: 1})
					var r reports
					src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", MaxAttempts: 2}, r.report)
					want(t, err)
					publish(t, b, "first", "a")
					want(t, reject(receive(t, src, "first", 1))) // there is no more room
					want(t, receive(t, src, "a", 1).Retry(t.Context(), 0))
					d := receive(t, src, "a", 2)
					if early {
						want(t, fail(d))
					}
					publish(t, b, "b", "c", "d")
					if !early {
						want(t, fail(d))
					}
					for _, id := range []string{"b", "c", "d"} {
						want(t, receive(t, src, id, 1).Ack(t.Context()))
					}
					dead := subscribe(t, b, messaging.Subscription{Name: "dead", DeadLettersOf: "s"})
					want(t, receive(t, dead, "first", 1).Ack(t.Context()))
					nothing(t, src, time.Minute) // as long as a burial may wait for another try
					letter := receive(t, dead, "a", 1)
					if l, ok := messaging.DeadLetterFrom(letter.Info); !ok || l.Sequence != 2 || l.Attempts != 2 || l.Stored.IsZero() {
						t.Errorf("the dead letter says %+v", l)
					}
					for _, err := range r.all() {
						if _, ok := errors.AsType[*messaging.DiscardedError](err); ok {
							t.Errorf("reported: %v", err)
						}
					}
				})
			})
		}
	}
}
