package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// The names that requests and replies have on the wire.
const (
	extReplyTo = "catchmentreplyto"
	extRequest = "catchmentrequest"
	replyTypes = "catchment.reply."
	aToken     = "abcdefghijklmnopqrstuv27"
)

// v1 is what holds the attributes of a valid event.
type v1 = sdk.EventContextV1

type answerer = func(context.Context, event.Event) (event.Event, error)

// answers replies with h to events of type "ask" until the test ends, under a
// subscription of that name. What becomes of the requests is sent to settled,
// unless it is nil.
func answers(t testing.TB, b messaging.Broker, name string, h answerer, settled func(reactor.Settlement)) {
	t.Helper()
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: name, Types: []string{"ask"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	opts := &messaging.Options{Concurrency: 16, Observer: &messaging.Observer{
		Settled: func(_ event.Event, _ reactor.Info, s reactor.Settlement) {
			if settled != nil && s.Err == nil {
				settled(s)
			}
		},
	}}
	done := make(chan error, 1)
	go func() { done <- reactor.Run(ctx, src, messaging.Reply(b, h), opts) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// echo answers with the same data, as an event of type "answer".
func echo(_ context.Context, ask event.Event) (event.Event, error) {
	answer, err := event.New("/replier", "answer", nil)
	if err == nil {
		err = answer.SetData(ask.DataContentType(), ask.Data())
	}
	return answer, err
}

func newRequester(t testing.TB, b messaging.Broker) *messaging.Requester {
	t.Helper()
	r, err := messaging.NewRequester(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// stored returns the log as it stands; for bubbles.
func stored(t testing.TB, b messaging.Broker, name string, types ...string) (events []event.Event) {
	t.Helper()
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: name, Types: types}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		d, err := src.Receive(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, d.Value)
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func wantLate(t testing.TB, r *messaging.Requester, want uint64) {
	t.Helper()
	if got := r.Late(); got != want {
		t.Errorf("Late() = %d, want %d", got, want)
	}
}

// TestRequest holds both sides to getting the event that the other made.
func TestRequest(t *testing.T) {
	with := func(typ, id string, extensions map[string]any) event.Event {
		e := newEvent(t, typ, "data of "+typ)
		c := e.Context.AsV1()
		c.ID, c.Extensions = id, extensions
		e.Context = c
		return e
	}
	full := make(map[string]any)
	for i := range event.MaxExtensions - 2 {
		full[fmt.Sprintf("ext%d", i)] = i
	}
	tests := []struct {
		name        string
		ask, answer event.Event
	}{
		{"plain", newEvent(t, "ask", 1), newEvent(t, "answer", 2)},
		{"no data", newEvent(t, "ask", nil), newEvent(t, "answer", nil)},
		{"ids with spaces and dots", with("ask", " a. ", nil), with("answer", " . ", nil)},
		{"odd type", newEvent(t, "ask", nil), with("..Ü *.>", "1", nil)},
		{"longest type", newEvent(t, "ask", nil), newEvent(t, strings.Repeat("x", 214), nil)},
		{"other extensions", with("ask", "1", map[string]any{"correlationid": "a", "replyto": "b"}), with("answer", "1", map[string]any{"correlationid": "c"})},
		{"many extensions", with("ask", "1", full), with("answer", "2", full)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				var asked event.Event
				answers(t, b, "replier", func(_ context.Context, ask event.Event) (event.Event, error) {
					asked = ask
					return test.answer, nil
				}, nil)
				r := newRequester(t, b)
				before := event.Clone(test.ask)
				got, err := r.Request(t.Context(), test.ask)
				if err != nil {
					t.Fatal(err)
				}
				if !event.Equal(got, test.answer) {
					t.Errorf("the reply is\n%v, want\n%v", got, test.answer)
				}
				if !event.Equal(asked, test.ask) {
					t.Errorf("the replier got\n%v, want\n%v", asked, test.ask)
				}
				if !event.Equal(before, test.ask) {
					t.Errorf("Request changed its argument to\n%v", test.ask)
				}
				wantLate(t, r, 0)
			})
		})
	}
}

// TestRequestConcurrent holds each of many Requests to its own reply.
func TestRequestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		answers(t, b, "replier", func(ctx context.Context, ask event.Event) (event.Event, error) {
			n, err := event.Data[int](ask)
			if err != nil {
				return event.Event{}, err
			}
			time.Sleep(time.Duration(n%7) * time.Millisecond) // out of order
			return echo(ctx, ask)
		}, nil)
		r := newRequester(t, b)
		var wg sync.WaitGroup
		for n := range 1000 {
			wg.Go(func() {
				got, err := r.Request(t.Context(), newEvent(t, "ask", n))
				if err != nil {
					t.Error(err)
					return
				}
				if back, err := event.Data[int](got); err != nil || back != n {
					t.Errorf("asked %d, got %d, %v", n, back, err)
				}
			})
		}
		wg.Wait()
		wantLate(t, r, 0)
	})
}

// TestRequestSameEvent holds an event that is asked again to being answered
// again, though the log has it, and answers that the log has to arriving.
func TestRequestSameEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		answers(t, b, "replier", func(_ context.Context, ask event.Event) (event.Event, error) { return ask, nil }, nil)
		r, other := newRequester(t, b), newRequester(t, b)
		ask := newEvent(t, "ask", nil)
		if err := b.Publish(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				r := r
				if i%2 > 0 {
					r = other
				}
				got, err := r.Request(t.Context(), ask)
				if err != nil || !event.Equal(got, ask) {
					t.Errorf("got %v, %v, want the same event", got, err)
				}
			})
		}
		wg.Wait()
	})
}

// TestRequestForwarded holds a replier that asks others with the same event
// to getting their reply, and not to passing its own request on.
func TestRequestForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		inner := newRequester(t, b)
		answers(t, b, "replier", func(ctx context.Context, ask event.Event) (event.Event, error) {
			if ask.Subject() == "inner" {
				return echo(ctx, ask)
			}
			ask.SetSubject("inner")
			return inner.Request(ctx, ask)
		}, nil)
		r := newRequester(t, b)
		got, err := r.Request(t.Context(), newEvent(t, "ask", 7))
		if err != nil || got.Type() != "answer" || string(got.Data()) != "7" {
			t.Errorf("got %v, %v, want the answer 7", got, err)
		}
	})
}

// TestRequestExtensions holds a request to replace what an event has of an
// earlier one, as one has that a handler without Reply passes on.
func TestRequestExtensions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		answers(t, b, "replier", echo, nil)
		ask := newEvent(t, "ask", 7)
		ask.SetExtension(extReplyTo, aToken)
		ask.SetExtension(extRequest, aToken)
		got, err := newRequester(t, b).Request(t.Context(), ask)
		if err != nil || string(got.Data()) != "7" {
			t.Errorf("got %v, %v, want the answer 7", got, err)
		}
	})
}

// TestRequestManyReplies holds Request to the first of several replies, and
// the others to being counted.
func TestRequestManyReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		for i := range 3 {
			answers(t, b, fmt.Sprint("replier-", i), func(ctx context.Context, _ event.Event) (event.Event, error) {
				time.Sleep(time.Duration(3-i) * time.Second)
				return event.New("/replier", "answer", i)
			}, nil)
		}
		r := newRequester(t, b)
		got, err := r.Request(t.Context(), newEvent(t, "ask", nil))
		if err != nil || string(got.Data()) != "2" {
			t.Errorf("got %v, %v, want the answer 2", got, err)
		}
		wantLate(t, r, 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantLate(t, r, 2)
	})
}

// BenchmarkRequest measures a request and its reply.
func BenchmarkRequest(b *testing.B) {
	broker := memory.New(nil)
	answers(b, broker, "replier", echo, nil)
	r := newRequester(b, broker)
	ask := newEvent(b, "ask", 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Request(b.Context(), ask); err != nil {
			b.Fatal(err)
		}
	}
}
