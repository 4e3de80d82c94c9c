package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

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
