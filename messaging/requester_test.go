package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestRequesterForgeries holds a requester to replies to its own requests.
func TestRequesterForgeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		r, other := newRequester(t, b), newRequester(t, b)
		done := make(chan error)
		go func() {
			_, err := r.Request(t.Context(), newEvent(t, "ask", nil))
			done <- err
		}()
		synctest.Wait()
		ask := stored(t, b, "asks", "ask")[0]
		to, token := ask.Extensions()[extReplyTo].(string), ask.Extensions()[extRequest].(string)

		go func() { _, _ = other.Request(t.Context(), newEvent(t, "other.ask", nil)) }()
		synctest.Wait()
		theirs := stored(t, b, "others", "other.ask")[0].Extensions()[extReplyTo].(string)

		forge := func(typ string, token any) {
			e := newEvent(t, typ, nil)
			if token != nil {
				e.SetExtension(extRequest, token)
			}
			if err := b.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		forge(replyTypes+to+".answer", nil)
		forge(replyTypes+to+".answer", "")
		forge(replyTypes+to+".answer", aToken)
		forge(replyTypes+to, token)
		forge(replyTypes+theirs+".answer", token)
		synctest.Wait()
		wantLate(t, r, 3)
		wantLate(t, other, 1)

		// What anybody knows who reads the log: the form of a reply.
		forge(replyTypes+to+".answer", token)
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantLate(t, r, 3)
		_ = other.Close() // its Request waits
	})
}

// TestRequesterClose holds Close to end the Requests that wait, and to leave
// nothing: no goroutine, which the bubble sees, and no subscription.
func TestRequesterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		r, err := messaging.NewRequester(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if subs, err := b.Subscriptions(t.Context()); err != nil || len(subs) != 1 || subs[0].Expires != time.Minute {
			t.Errorf("subscriptions are %v, %v, want one that expires", subs, err)
		}
		errs := make(chan error)
		for range 100 {
			go func() {
				_, err := r.Request(t.Context(), newEvent(t, "ask", nil))
				errs <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		for range 3 {
			go func() { errs <- r.Close() }()
		}
		var closed int
		for range 103 {
			switch err := <-errs; {
			case errors.Is(err, messaging.ErrClosed):
				closed++
			case err != nil:
				t.Error(err)
			}
		}
		if closed != 100 || time.Since(began) != 0 {
			t.Errorf("%d Requests returned ErrClosed after %v, want 100 at once", closed, time.Since(began))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Request(ended, event.Event{}); !errors.Is(err, messaging.ErrClosed) {
			t.Errorf("Request = %v, want ErrClosed before all else", err)
		}
		if subs, err := b.Subscriptions(t.Context()); err != nil || len(subs) != 0 {
			t.Errorf("subscriptions are %v, %v, want none", subs, err)
		}
		if log := stored(t, b, "all"); len(log) != 100 {
			t.Errorf("the log has %d events, want 100", len(log))
		}
	})
}

// TestRequesterBrokerCloses holds a requester to end with its broker.
func TestRequesterBrokerCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		r := newRequester(t, b)
		go func() {
			time.Sleep(time.Second)
			_ = b.Close()
		}()
		for range 2 {
			if _, err := r.Request(t.Context(), newEvent(t, "ask", nil)); !errors.Is(err, messaging.ErrClosed) {
				t.Errorf("Request = %v, want ErrClosed", err)
			}
		}
		if _, err := messaging.NewRequester(t.Context(), b); !errors.Is(err, messaging.ErrClosed) {
			t.Errorf("NewRequester = %v, want ErrClosed", err)
		}
	})
}

// TestRequesterWithoutAdmin holds the subscription to expiring by itself
// [SUB-10].
func TestRequesterWithoutAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		r, err := messaging.NewRequester(t.Context(), narrowBroker{Broker: b})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		for _, want := range []int{1, 0} {
			subs, err := b.Subscriptions(t.Context())
			if err != nil || len(subs) != want {
				t.Errorf("subscriptions are %v, %v, want %d", subs, err, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestRequesterUnsupported holds a provider without Expires to refusing a
// requester [CAP-1].
func TestRequesterUnsupported(t *testing.T) {
	b := narrowBroker{subscribe: func(_ context.Context, sub messaging.Subscription, _ messaging.Report) (messaging.Source, error) {
		if sub.Expires == 0 {
			t.Errorf("subscribed %+v, want Expires", sub)
		}
		return nil, fmt.Errorf("no Expires: %w", errors.ErrUnsupported)
	}}
	if _, err := messaging.NewRequester(t.Context(), b); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("NewRequester = %v, want ErrUnsupported", err)
	}
}

// TestRequesterCloseDuringPublish holds Close to end a Request that waits for
// a broker that is away.
func TestRequesterCloseDuringPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequester(t, narrowBroker{Broker: memory.New(nil), publish: func(ctx context.Context, _ ...event.Event) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", messaging.ErrUnknown, ctx.Err())
		}})
		done := make(chan error)
		go func() {
			_, err := r.Request(t.Context(), newEvent(t, "ask", nil))
			done <- err
		}()
		synctest.Wait()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, messaging.ErrClosed) {
			t.Errorf("Request = %v, want ErrClosed", err)
		}
	})
}

// TestRequesterSubscribesAgain deletes the subscription of a requester, as an
// outage does that outlasts Expires: replies that came meanwhile are not lost,
// where the broker has Positions.
func TestRequesterSubscribesAgain(t *testing.T) {
	tests := []struct {
		name      string
		before    int // requests that were answered before
		positions bool
		answered  bool // the one that waits
	}{
		{"before the first reply", 0, true, true},
		{"later", 3, true, true},
		{"without Positions", 3, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			quiet(t)
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				var away atomic.Bool
				r := newRequester(t, narrowBroker{Broker: b, subscribe: func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
					if away.Load() {
						return nil, errors.New("the broker is away")
					}
					if _, ok := sub.Start.Sequence(); ok && !test.positions {
						return nil, fmt.Errorf("no Positions: %w", errors.ErrUnsupported)
					}
					return b.Subscribe(ctx, sub, report)
				}})
				answers(t, b, "replier", func(ctx context.Context, ask event.Event) (event.Event, error) {
					if ask.Subject() == "slow" {
						time.Sleep(3 * time.Second)
					}
					return echo(ctx, ask)
				}, nil)
				for range test.before {
					if _, err := r.Request(t.Context(), newEvent(t, "ask", nil)); err != nil {
						t.Fatal(err)
					}
				}
				done := make(chan error)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					slow := newEvent(t, "ask", nil)
					slow.SetSubject("slow")
					_, err := r.Request(ctx, slow)
					done <- err
				}()
				time.Sleep(time.Second)
				subs, err := b.Subscriptions(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				away.Store(true)
				for _, s := range subs {
					if strings.HasPrefix(s.Name, "reply-") {
						if _, err := b.Delete(t.Context(), s.Subscription); err != nil {
							t.Fatal(err)
						}
					}
				}
				time.Sleep(5 * time.Second)
				away.Store(false)
				if err := <-done; errors.Is(err, context.DeadlineExceeded) == test.answered || test.answered && err != nil {
					t.Errorf("the Request that waited = %v, want an answer: %v", err, test.answered)
				}
				if _, err := r.Request(t.Context(), newEvent(t, "ask", nil)); err != nil {
					t.Errorf("the next Request = %v", err)
				}
				wantLate(t, r, 0)
			})
		})
	}
}

// TestRequesterClosesWhileAway holds Close to end a requester that has no
// subscription and cannot get one.
func TestRequesterClosesWhileAway(t *testing.T) {
	quiet(t)
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		subscribed := false
		r := newRequester(t, narrowBroker{Broker: b, subscribe: func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			if subscribed {
				return nil, errors.New("the broker is away")
			}
			subscribed = true
			return b.Subscribe(ctx, sub, report)
		}})
		subs, err := b.Subscriptions(t.Context())
		if err != nil || len(subs) != 1 {
			t.Fatalf("subscriptions are %v, %v, want one", subs, err)
		}
		if _, err := b.Delete(t.Context(), subs[0].Subscription); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		began := time.Now()
		if err := r.Close(); err != nil || time.Since(began) != 0 {
			t.Errorf("Close = %v after %v, want nil at once", err, time.Since(began))
		}
	})
}
