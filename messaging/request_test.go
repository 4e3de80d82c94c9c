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

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

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

// TestReplyRetries holds an error of the handler to having the request
// delivered again while the requester waits on [RUN-1].
func TestReplyRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		answers(t, b, "replier", func(ctx context.Context, ask event.Event) (event.Event, error) {
			if reactor.InfoFrom(ctx).Attempt < 3 {
				return event.Event{}, reactor.RetryAfter(errors.New("not yet"), time.Second)
			}
			return echo(ctx, ask)
		}, nil)
		r := newRequester(t, b)
		began := time.Now()
		if _, err := r.Request(t.Context(), newEvent(t, "ask", nil)); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(began); got != 2*time.Second {
			t.Errorf("answered after %v, want 2s", got)
		}
		wantLate(t, r, 0)
	})
}

// TestReplyToNobody holds Reply to calling its handler for an event that is no
// request, and to publishing nothing.
func TestReplyToNobody(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want reactor.Result
	}{
		{"answered", nil, reactor.Acked},
		{"failed", reactor.Reject(errors.New("boom")), reactor.Rejected},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				var asked event.Event
				var got reactor.Result
				answers(t, b, "replier", func(_ context.Context, ask event.Event) (event.Event, error) {
					asked = ask
					return event.Event{}, test.err
				}, func(s reactor.Settlement) { got = s.Outcome.Result })
				e := newEvent(t, "ask", nil)
				e.SetExtension(extRequest, "of another kind") // a reply has it, too
				if err := b.Publish(t.Context(), e); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if !event.Equal(asked, e) || got != test.want {
					t.Errorf("the handler got\n%v, which was %v, want\n%v, %v", asked, got, e, test.want)
				}
				if log := stored(t, b, "all"); len(log) != 1 {
					t.Errorf("the log is %v, want the one event", log)
				}
			})
		})
	}
}

// TestReplyToStrangers holds Reply to reject a request whose extensions are
// not of the form that Request gives them, before it does anything [SEC-1].
func TestReplyToStrangers(t *testing.T) {
	tests := []struct {
		name           string
		replyTo, token any // nil: none
	}{
		{"no token", aToken, nil},
		{"empty token", aToken, ""},
		{"long token", aToken, aToken + "a"},
		{"very long token", aToken, strings.Repeat("a", 10_000)},
		{"token of other characters", aToken, "ABCDEFGHIJKLMNOPQRSTUV27"},
		{"empty address", "", aToken},
		{"short address", aToken[1:], aToken},
		{"long address", aToken + "a", aToken},
		{"address that is a type", "order.placed", aToken},
		{"address with dots", "abcdefghijk.mnopqrstuv27", aToken},
		{"address with a wildcard", "abcdefghijklmnopqrstuv.>", aToken},
		{"address that is a subject", "$JS.API.STREAM.DELETE.xyz", aToken},
		{"address that is not ASCII", "äbcdefghijklmnopqrstuv2", aToken},
		{"address that is a number", 7, aToken},
		{"address with a 1", "abcdefghijklmnopqrstuv17", aToken},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				var got reactor.Outcome
				answers(t, b, "replier", func(context.Context, event.Event) (event.Event, error) {
					t.Error("the handler was called")
					return newEvent(t, "answer", nil), nil
				}, func(s reactor.Settlement) { got = s.Outcome })
				e := newEvent(t, "ask", nil)
				for name, v := range map[string]any{extReplyTo: test.replyTo, extRequest: test.token} {
					if v != nil {
						e.SetExtension(name, v)
					}
				}
				if err := b.Publish(t.Context(), e); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				want := reactor.Outcome{
					Result: reactor.Rejected,
					Reason: "messaging: invalid: extensions catchmentreplyto and catchmentrequest: must be 24 of a-z and 2-7, each",
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if log := stored(t, b, "all"); len(log) != 1 {
					t.Errorf("the log is %v, want the one event", log)
				}
			})
		})
	}
}

// TestReplyBearsAnything holds Reply to not panic on events that no broker
// delivers.
func TestReplyBearsAnything(t *testing.T) {
	b := memory.New(nil)
	defer b.Close()
	noContext := newEvent(t, "ask", nil)
	noContext.Context = (*v1)(nil)
	old := newEvent(t, "ask", nil)
	old.Context = old.Context.AsV03()
	notText := newEvent(t, "ask", nil)
	notText.Context = &v1{Extensions: map[string]any{extReplyTo: nil, extRequest: []byte(aToken)}}
	for _, e := range []event.Event{{}, noContext, old, notText} {
		for _, answer := range []event.Event{{}, noContext, old} {
			_ = messaging.Reply(b, func(context.Context, event.Event) (event.Event, error) { return answer, nil })(t.Context(), e)
		}
	}
	ask := newEvent(t, "ask", nil)
	ask.SetExtension(extReplyTo, aToken)
	ask.SetExtension(extRequest, aToken)
	for _, answer := range []event.Event{{}, noContext, old} {
		if err := messaging.Reply(b, func(context.Context, event.Event) (event.Event, error) { return answer, nil })(t.Context(), ask); !errors.Is(err, messaging.ErrInvalid) {
			t.Errorf("the reply %#v: %v, want ErrInvalid", answer.Context, err)
		}
	}
}

// TestReplyRefused holds Reply to reject a request whose answer cannot be
// published, now or ever, and to retry when it may be later.
func TestReplyRefused(t *testing.T) {
	full := newEvent(t, "answer", nil)
	for i := range event.MaxExtensions {
		full.SetExtension(fmt.Sprintf("ext%d", i), i)
	}
	noID := newEvent(t, "answer", nil)
	noID.SetID("x")
	noID.Context.(*v1).ID = ""
	noType := newEvent(t, "answer", nil)
	noType.SetType("")
	tests := []struct {
		name   string
		answer event.Event
		want   reactor.Result
		reason string
	}{
		{"zero", event.Event{}, reactor.Rejected, "specversion"},
		{"no id", noID, reactor.Rejected, "id"},
		{"no type", noType, reactor.Rejected, "type"},
		{"type too long", newEvent(t, strings.Repeat("x", 215), nil), reactor.Rejected, "is 256 bytes long, at most 255"},
		{"extensions", full, reactor.Rejected, "65 extensions, at most 64"},
		{"too large", newEvent(t, "answer", make([]byte, messaging.MaxEventSize)), reactor.Rejected, "too large"},
		{"log full", newEvent(t, "answer", nil), reactor.Retried, "log is full"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(&memory.Options{MaxEvents: 1})
				var got reactor.Outcome
				answers(t, b, "replier", func(context.Context, event.Event) (event.Event, error) {
					return test.answer, nil
				}, func(s reactor.Settlement) { got = s.Outcome })
				r := newRequester(t, b)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := r.Request(ctx, newEvent(t, "ask", nil)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Request = %v, want DeadlineExceeded", err)
				}
				synctest.Wait()
				if got.Result != test.want || !strings.Contains(got.Reason, test.reason) {
					t.Errorf("the request was %v: %s, want %v: %s", got.Result, got.Reason, test.want, test.reason)
				}
			})
		})
	}
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
