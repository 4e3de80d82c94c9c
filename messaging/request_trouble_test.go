package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestRequestTimeout holds Request to end with its context, at once, and the
// reply that comes afterwards to being dropped and counted.
func TestRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		answers(t, b, "replier", func(ctx context.Context, ask event.Event) (event.Event, error) {
			time.Sleep(3 * time.Second)
			return echo(ctx, ask)
		}, nil)
		r := newRequester(t, b)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := r.Request(ctx, newEvent(t, "ask", nil)); !errors.Is(err, context.DeadlineExceeded) || got.Context != nil {
			t.Errorf("Request = %v, %v, want DeadlineExceeded", got, err)
		}
		if got := time.Since(began); got != time.Second {
			t.Errorf("Request returned after %v, want 1s", got)
		}
		time.Sleep(2*time.Second - time.Nanosecond)
		synctest.Wait()
		wantLate(t, r, 0)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantLate(t, r, 1)

		// Nothing is published for a context that has ended.
		if _, err := r.Request(ctx, event.Event{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Request = %v, want DeadlineExceeded before ErrInvalid", err)
		}
	})
}

// TestRequestRace lets replies come at the moment at which Request gives up:
// each is returned or counted.
func TestRequestRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		answers(t, b, "replier", func(ctx context.Context, ask event.Event) (event.Event, error) {
			time.Sleep(time.Second)
			return echo(ctx, ask)
		}, nil)
		r := newRequester(t, b)
		var returned atomic.Uint64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				switch _, err := r.Request(ctx, newEvent(t, "ask", nil)); {
				case err == nil:
					returned.Add(1)
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if got := returned.Load() + r.Late(); got != 16 {
			t.Errorf("%d replies were returned and %d late, want 16 in all", returned.Load(), r.Late())
		}
	})
}

// TestRequestRedelivered holds a request that is delivered again, since its
// ack got lost, to being answered again, which harms nobody.
func TestRequestRedelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "replier", Types: []string{"ask"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		same := newEvent(t, "answer", "the same")
		wg := sync.WaitGroup{}
		wg.Go(func() {
			d, err := src.Receive(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for _, h := range []answerer{
				echo, echo, // a new event each time
				func(context.Context, event.Event) (event.Event, error) { return same, nil },
				func(context.Context, event.Event) (event.Event, error) { return same, nil }, // a duplicate [PUB-3]
			} {
				if err := messaging.Reply(b, h)(t.Context(), d.Value); err != nil {
					t.Error(err)
				}
			}
		})
		r := newRequester(t, b)
		if _, err := r.Request(t.Context(), newEvent(t, "ask", "x")); err != nil {
			t.Error(err)
		}
		wg.Wait()
		synctest.Wait()
		wantLate(t, r, 2)
	})
}

// TestRequestRefused holds Request to refuse what breaks the rules, or would
// with a request's extensions, and to publish nothing of it.
func TestRequestRefused(t *testing.T) {
	full := newEvent(t, "ask", nil)
	for i := range event.MaxExtensions - 1 {
		full.SetExtension(fmt.Sprintf("ext%d", i), i)
	}
	noID := newEvent(t, "ask", nil)
	noID.Context.(*v1).ID = ""
	long := newEvent(t, "ask", nil)
	long.SetType(strings.Repeat("x", 256))
	tests := []struct {
		name string
		ask  event.Event
		is   error
		want string
	}{
		{"zero", event.Event{}, messaging.ErrInvalid, "specversion"},
		{"no id", noID, messaging.ErrInvalid, "id"},
		{"type too long", long, messaging.ErrInvalid, "is 256 bytes long"},
		{"extensions", full, messaging.ErrInvalid, "65 extensions, at most 64"},
		{"too large", newEvent(t, "ask", make([]byte, messaging.MaxEventSize)), messaging.ErrTooLarge, "too large"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				_, err := newRequester(t, b).Request(t.Context(), test.ask)
				if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("Request = %v, want %v that says %q", err, test.is, test.want)
				}
				if log := stored(t, b, "all"); len(log) != 0 {
					t.Errorf("the log is %v, want nothing", log)
				}
			})
		})
	}
}

// A narrowBroker is a broker without an Admin, and with what its functions do
// instead.
type narrowBroker struct {
	messaging.Broker
	publish   func(context.Context, ...event.Event) error
	subscribe func(context.Context, messaging.Subscription, messaging.Report) (messaging.Source, error)
}

func (b narrowBroker) Publish(ctx context.Context, events ...event.Event) error {
	if b.publish != nil {
		return b.publish(ctx, events...)
	}
	return b.Broker.Publish(ctx, events...)
}

func (b narrowBroker) Subscribe(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
	if b.subscribe != nil {
		return b.subscribe(ctx, sub, report)
	}
	return b.Broker.Subscribe(ctx, sub, report)
}

// TestRequestPublishFails holds Request to the errors of Publish, unless the
// reply has come meanwhile.
func TestRequestPublishFails(t *testing.T) {
	tests := []struct {
		name    string
		publish error
		stored  bool
		want    error
	}{
		{"full", messaging.ErrFull, false, messaging.ErrFull},
		{"unknown", messaging.ErrUnknown, false, messaging.ErrUnknown},
		{"unknown, and answered", messaging.ErrUnknown, true, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				answers(t, b, "replier", echo, nil)
				r := newRequester(t, narrowBroker{Broker: b, publish: func(ctx context.Context, events ...event.Event) error {
					if test.stored {
						if err := b.Publish(ctx, events...); err != nil {
							return err
						}
						synctest.Wait()
					}
					return test.publish
				}})
				if _, err := r.Request(t.Context(), newEvent(t, "ask", nil)); !errors.Is(err, test.want) {
					t.Errorf("Request = %v, want %v", err, test.want)
				}
			})
		})
	}
}

// quiet drops what is logged during the test.
func quiet(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
}

// TestRequestHostile asks over a broker that is as bad as it may be: who asks
// again when Publish fails, or no answer comes in time, is answered.
func TestRequestHostile(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(&memory.Options{Hostile: &memory.Hostile{Seed: seed}})
				answers(t, b, "replier", echo, nil)
				r := newRequester(t, b)
				var wg sync.WaitGroup
				for n := range 50 {
					wg.Go(func() {
						ask := newEvent(t, "ask", n)
						for range 50 {
							got, err := r.Request(t.Context(), ask)
							if errors.Is(err, messaging.ErrUnknown) {
								continue
							}
							if back, _ := event.Data[int](got); err != nil || back != n {
								t.Errorf("asked %d, got %d, %v", n, back, err)
							}
							return
						}
						t.Errorf("%d was never answered", n)
					})
				}
				wg.Wait()
			})
		})
	}
}

// A lateBroker hands out some deliveries late, as if who received them had to wait for a
// processor.
type lateBroker struct {
	*memory.Broker
	late func(e event.Event) time.Duration
}

func (b *lateBroker) Subscribe(ctx context.Context, sub messaging.Subscription, r messaging.Report) (messaging.Source, error) {
	src, err := b.Broker.Subscribe(ctx, sub, r)
	if err != nil {
		return nil, err
	}
	return &lateSource{src, b.late}, nil
}

type lateSource struct {
	messaging.Source
	late func(e event.Event) time.Duration
}

func (s *lateSource) Receive(ctx context.Context) (*messaging.Delivery, error) {
	d, err := s.Source.Receive(ctx)
	if err == nil {
		time.Sleep(s.late(d.Value))
	}
	return d, err
}

// TestRequestOvertaken deletes the replies' subscription when one of them has been
// received but is not handed on yet, and a later one is: both Requests get theirs.
func TestRequestOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var on atomic.Bool
		b := &lateBroker{memory.New(nil), func(e event.Event) time.Duration {
			if strings.HasPrefix(e.Type(), "catchment.reply.") && strings.HasSuffix(e.ID(), "first") && on.CompareAndSwap(true, false) {
				return time.Millisecond
			}
			return 0
		}}
		rs := newRequester(t, b)
		reply := messaging.Reply(b, func(_ context.Context, e event.Event) (event.Event, error) {
			a, err := event.New("/s", "answer", nil)
			a.SetID(e.ID())
			return a, err
		})
		go messaging.React(t.Context(), b, messaging.Subscription{Name: "replier", Types: []string{"ask"}}, reply, &messaging.Options{Concurrency: 4})
		ask := func(id string) {
			e := newEvent(t, "ask", nil)
			e.SetID(id)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := rs.Request(ctx, e); err != nil {
				t.Errorf("request %s: %v", id, err)
			}
		}
		var asked sync.WaitGroup
		for i := range 8 { // at once, so that several wait in Receive afterwards
			asked.Go(func() { ask(fmt.Sprint(i)) })
		}
		asked.Wait()
		synctest.Wait()
		on.Store(true)
		asked.Go(func() { ask("first") })
		synctest.Wait()
		ask("second")
		subs, err := b.Subscriptions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range subs {
			if strings.HasPrefix(s.Name, "reply-") {
				if _, err := b.Delete(t.Context(), s.Subscription); err != nil {
					t.Error(err)
				}
			}
		}
		asked.Wait()
		if n := rs.Late(); n != 0 {
			t.Errorf("%d replies are counted late, want none", n)
		}
		if err := errors.Join(rs.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
}
