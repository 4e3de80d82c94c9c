package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// status returns the state of a subscription, and fails if there is none.
func status(t testing.TB, b *memory.Broker, name, deadLettersOf string) messaging.Status {
	t.Helper()
	all, err := b.Subscriptions(t.Context())
	want(t, err)
	for _, s := range all {
		if s.Name == name && s.DeadLettersOf == deadLettersOf {
			return s
		}
	}
	t.Fatalf("no subscription %q of %q in %+v", name, deadLettersOf, all)
	return messaging.Status{}
}

// wantStatus compares what is counted of a subscription.
func wantStatus(t testing.TB, b *memory.Broker, name string, counted messaging.Status) {
	t.Helper()
	got := status(t, b, name, "")
	if diff := cmp.Diff(counted, got, cmpopts.IgnoreFields(messaging.Status{}, "Subscription")); diff != "" {
		t.Errorf("status of %s (-want +got):\n%s", name, diff)
	}
}

// TestStatusIsExact holds each number to what it is at that nanosecond, also
// when nobody has looked since: a hold that ran out, a retry that is due, a
// last failure that nobody saw [ADM-1].
func TestStatusIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", AckWait: 10 * time.Second, MaxAttempts: 2})
		began := time.Now()
		publish(t, b, "a", "b")
		time.Sleep(time.Second)
		publish(t, b, "c")
		wantStatus(t, b, "s", messaging.Status{Pending: 3, Oldest: began, Members: 1})
		a := receive(t, src, "a", 1)
		wantStatus(t, b, "s", messaging.Status{Pending: 2, InFlight: 1, Oldest: began, Members: 1})
		want(t, receive(t, src, "b", 1).Retry(t.Context(), time.Minute))
		wantStatus(t, b, "s", messaging.Status{Pending: 1, InFlight: 2, Redelivered: 1, Oldest: began, Members: 1})
		time.Sleep(10*time.Second - 1)
		wantStatus(t, b, "s", messaging.Status{Pending: 1, InFlight: 2, Redelivered: 1, Oldest: began, Members: 1})
		time.Sleep(time.Nanosecond) // a is lost
		wantStatus(t, b, "s", messaging.Status{Pending: 1, InFlight: 2, Redelivered: 2, Oldest: began, Members: 1})
		wantErr(t, a.Ack(t.Context()), reactor.ErrLost)
		receive(t, src, "a", 2)
		time.Sleep(10 * time.Second) // a is dead
		wantStatus(t, b, "s", messaging.Status{Pending: 1, InFlight: 1, Redelivered: 1, DeadLetters: 1, Oldest: began, Members: 1})
		want(t, receive(t, src, "c", 1).Ack(t.Context()))
		want(t, src.Close())
		wantStatus(t, b, "s", messaging.Status{InFlight: 1, Redelivered: 1, DeadLetters: 1, Oldest: began})
	})
}

// TestSeekGivesNothingBack holds a Seek to forgetting what waits for its retry,
// what is lost later, and what Close would give back [ADM-2].
func TestSeekGivesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", AckWait: 10 * time.Second, MaxAttempts: 1})
		publish(t, b, "a", "b", "c")
		receive(t, src, "a", 1)
		held := receive(t, src, "b", 1)
		time.Sleep(10*time.Second - 1)
		want(t, b.Seek(t.Context(), messaging.Subscription{Name: "s"}, messaging.StartNew()))
		_, err := held.Extend(t.Context())
		wantErr(t, err, reactor.ErrLost)
		time.Sleep(time.Hour)
		receiveNothing(t, src)
		want(t, src.Close())
		wantStatus(t, b, "s", messaging.Status{})
	})
}

// TestSeekInstants holds StartAt to the nanosecond, and to the present as the
// last that is not in the future [ADM-2].
func TestSeekInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s"})
		publish(t, b, "a")
		time.Sleep(time.Nanosecond)
		at := time.Now()
		publish(t, b, "b", "c")
		time.Sleep(time.Nanosecond)
		seek := func(to messaging.Start, ids ...string) {
			t.Helper()
			want(t, b.Seek(t.Context(), messaging.Subscription{Name: "s"}, to))
			wantIDs(t, src, ids...)
		}
		seek(messaging.StartAt(at.Add(-1)), "a", "b", "c")
		seek(messaging.StartAt(at), "b", "c")
		seek(messaging.StartAt(at.Add(1)))
		seek(messaging.StartAt(time.Now()))
		seek(messaging.StartFrom(3), "c")
		seek(messaging.StartFrom(5))
		publish(t, b, "d", "e")
		wantIDs(t, src, "e")
		wantErr(t, b.Seek(t.Context(), messaging.Subscription{Name: "s"}, messaging.StartAt(time.Now().Add(1))), messaging.ErrInvalid)
	})
}

// TestSeekAfterDiscard holds a Seek behind the first retained event to that
// one, without a report: nothing is lost that was received [ADM-2, RET-3].
func TestSeekAfterDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxEvents: 2, DiscardOldest: true})
		src := subscribe(t, b, messaging.Subscription{Name: "s"})
		for _, id := range []string{"a", "b", "c", "d"} {
			publish(t, b, id)
			wantIDs(t, src, id)
		}
		for _, to := range []messaging.Start{messaging.StartFirst(), messaging.StartFrom(1)} {
			want(t, b.Seek(t.Context(), messaging.Subscription{Name: "s"}, to))
			wantIDs(t, src, "c", "d")
		}
	})
}

// TestUpdateKeepsDeadlines holds a delivery that is out to the deadline that its
// member was told, whichever way AckWait changes [ADM-4].
func TestUpdateKeepsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		sub := messaging.Subscription{Name: "s", AckWait: 10 * time.Second}
		src := subscribe(t, b, sub)
		publish(t, b, "a", "b")
		receive(t, src, "a", 1)
		sub.AckWait = 4 * time.Second
		want(t, b.Update(t.Context(), sub))
		second := receive(t, src, "b", 1)
		receiveAt(t, src, "b", 2, 4*time.Second)
		wantErr(t, second.Ack(t.Context()), reactor.ErrLost)
		sub.AckWait = time.Minute
		want(t, b.Update(t.Context(), sub))
		receiveAt(t, src, "b", 3, 4*time.Second)
		receiveAt(t, src, "a", 2, 2*time.Second)
		receiveAt(t, src, "b", 4, 58*time.Second)
	})
}

// TestUpdateWakes holds a Receive that waits to noticing what an Update lets
// through, and when it is due under the new settings [ADM-4].
func TestUpdateWakes(t *testing.T) {
	for name, change := range map[string]func(*messaging.Subscription){
		"MaxInFlight": func(s *messaging.Subscription) { s.MaxInFlight = 2 },
		"all": func(s *messaging.Subscription) {
			s.MaxInFlight, s.AckWait, s.MaxAttempts, s.Types = 9, time.Second, 7, []string{"test", "other"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				sub := messaging.Subscription{Name: "s", MaxInFlight: 1, Types: []string{"test"}}
				src := subscribe(t, b, sub)
				publish(t, b, "a", "b")
				receive(t, src, "a", 1)
				got := make(chan *messaging.Delivery, 1)
				go func() {
					d, _ := src.Receive(t.Context())
					got <- d
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				change(&sub)
				want(t, b.Update(t.Context(), sub))
				synctest.Wait()
				select {
				case d := <-got:
					if d.Value.ID() != "b" {
						t.Errorf("received %s", d.Value.ID())
					}
				default:
					t.Fatal("the Receive still waits")
				}
			})
		})
	}
}

// TestDeleteWakesAll holds every Receive that waits to ending at once, and the
// next subscription of that name to being another [ADM-3].
func TestDeleteWakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		sub := messaging.Subscription{Name: "s", MaxInFlight: 1}
		errs := make(chan error, 20)
		for range 4 {
			src := subscribe(t, b, sub)
			for range 5 {
				go func() {
					_, err := src.Receive(t.Context())
					errs <- err
				}()
			}
		}
		synctest.Wait()
		began := time.Now()
		n, err := b.Delete(t.Context(), sub)
		want(t, err)
		fresh := subscribe(t, b, sub)
		for range cap(errs) {
			wantErr(t, <-errs, messaging.ErrNotFound)
		}
		if n != 0 || !time.Now().Equal(began) {
			t.Errorf("deleted %d events, in %v", n, time.Since(began))
		}
		publish(t, b, "a")
		receive(t, fresh, "a", 1)
	})
}

// TestDeleteOfSome holds Delete to counting what matches and is not settled, of
// whichever log [ADM-3].
func TestDeleteOfSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src := subscribe(t, b, messaging.Subscription{Name: "s", Types: []string{"test"}})
		letters := subscribe(t, b, messaging.Subscription{Name: "l", DeadLettersOf: "s"})
		other, err := event.New("/test", "other", nil)
		want(t, err)
		publish(t, b, "a", "b", "c", "d")
		want(t, b.Publish(t.Context(), other))
		want(t, receive(t, src, "a", 1).Ack(t.Context()))
		want(t, receive(t, src, "b", 1).Reject(t.Context(), "no"))
		want(t, receive(t, src, "c", 1).Retry(t.Context(), time.Hour))
		held := receive(t, letters, "b", 1)
		n, err := b.Delete(t.Context(), messaging.Subscription{Name: "s"})
		want(t, err)
		if n != 2 {
			t.Errorf("deleted %d events, want c and d", n)
		}
		want(t, held.Retry(t.Context(), 0)) // the dead letters live on
		receive(t, letters, "b", 2)
		n, err = b.DeleteDeadLetters(t.Context(), "s")
		want(t, err)
		if n != 1 {
			t.Errorf("deleted %d dead letters, want b", n)
		}
		time.Sleep(time.Hour)
		receiveNothing(t, letters)
	})
}

// TestDeleteDeadLettersMakesRoom holds what could not be buried to being buried
// when there is room again [DLQ-3, ADM-3].
func TestDeleteDeadLettersMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxDeadLetters: 1})
		src, _ := subscribeReporting(t, b, messaging.Subscription{Name: "s", MaxInFlight: 1})
		publish(t, b, "a", "b", "c")
		want(t, receive(t, src, "a", 1).Reject(t.Context(), "no"))
		want(t, receive(t, src, "b", 1).Reject(t.Context(), "no"))
		time.Sleep(time.Hour)
		receiveNothing(t, src)
		wantStatus(t, b, "s", messaging.Status{
			Pending: 1, InFlight: 1, DeadLetters: 1, Oldest: status(t, b, "s", "").Oldest, Members: 1,
		})
		n, err := b.DeleteDeadLetters(t.Context(), "s")
		want(t, err)
		if n != 1 {
			t.Errorf("deleted %d dead letters, want a", n)
		}
		time.Sleep(10 * time.Second)
		receive(t, src, "c", 1)
		if s := status(t, b, "s", ""); s.DeadLetters != 1 || s.InFlight != 1 {
			t.Errorf("after there was room: %+v", s)
		}
	})
}

// TestAdminWhileAllWorks lets an Admin do everything at once while members work
// and publishers publish: nothing races, and in the end all that there is comes
// to whoever subscribes.
func TestAdminWhileAllWorks(t *testing.T) {
	b := memory.New(nil)
	sub := messaging.Subscription{Name: "s", MaxInFlight: 8, MaxAttempts: 3, AckWait: time.Minute}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var done sync.WaitGroup
	// Members: they come back when their subscription was deleted, and know
	// that its settings may be others now.
	for range 3 {
		done.Go(func() {
			for ctx.Err() == nil {
				src, err := b.Subscribe(ctx, sub, func(context.Context, error) {})
				if errors.Is(err, messaging.ErrConflict) {
					_ = b.Update(ctx, sub)
					continue
				}
				if err != nil {
					return
				}
				for n := 0; ; n++ {
					d, err := src.Receive(ctx)
					if err != nil {
						if ctx.Err() == nil && !errors.Is(err, messaging.ErrNotFound) {
							t.Errorf("receive: %v", err)
						}
						break
					}
					switch n % 4 {
					case 0:
						err = d.Reject(ctx, "for a test")
					case 1:
						err = d.Retry(ctx, 0)
					default:
						err = d.Ack(ctx)
					}
					if err != nil && !errors.Is(err, reactor.ErrLost) && ctx.Err() == nil {
						t.Errorf("settle: %v", err)
					}
				}
				_ = src.Close()
			}
		})
	}
	admin := func(f func(i int) error) {
		done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := f(i); err != nil && !errors.Is(err, messaging.ErrNotFound) && ctx.Err() == nil {
					t.Errorf("admin: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	admin(func(i int) error {
		return b.Seek(ctx, sub, []messaging.Start{messaging.StartFirst(), messaging.StartNew(), messaging.StartFrom(uint64(i))}[i%3])
	})
	admin(func(i int) error {
		other := sub
		other.MaxInFlight = 1 + i%9
		return b.Update(ctx, other)
	})
	admin(func(int) error { _, err := b.Subscriptions(ctx); return err })
	admin(func(int) error { _, err := b.DeleteDeadLetters(ctx, sub.Name); return err })
	admin(func(i int) error {
		if i%10 != 9 {
			return nil
		}
		_, err := b.Delete(ctx, sub)
		return err
	})
	for i := range 300 {
		publish(t, b, fmt.Sprint(i))
		time.Sleep(200 * time.Microsecond)
	}
	cancel()
	done.Wait()

	if _, err := b.Delete(t.Context(), sub); err != nil && !errors.Is(err, messaging.ErrNotFound) {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	src := subscribe(t, b, sub)
	for i := range 300 {
		d, err := src.Receive(ctx)
		want(t, err)
		if d.Value.ID() != fmt.Sprint(i) || d.Info.Attempt != 1 {
			t.Fatalf("received %s in attempt %d, want %d in attempt 1", d.Value.ID(), d.Info.Attempt, i)
		}
		want(t, d.Ack(ctx))
	}
	wantStatus(t, b, "s", messaging.Status{Members: 1, DeadLetters: status(t, b, "s", "").DeadLetters})
}
