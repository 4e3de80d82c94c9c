package jetstream_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

// TestRequest asks and answers over a server.
func TestRequest(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second) // for what takes one
	done := make(chan error, 1)
	go func() {
		sub := messaging.Subscription{Name: "replier", Types: []string{"ask"}}
		done <- messaging.React(ctx, b, sub, messaging.Reply(b, func(_ context.Context, ask event.Event) (event.Event, error) {
			if ask.Subject() != "echo" {
				return event.New("/replier", "answer", ask.Data())
			}
			return ask, nil
		}), &messaging.Options{Concurrency: 16})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r, err := messaging.NewRequester(ctx, b)
	if err != nil {
		t.Fatal(err)
	}

	echo := makeEvent(t, "ask", "x")
	echo.SetSubject("echo")
	for range 2 { // the second is no duplicate of the first
		if got, err := r.Request(ctx, echo); err != nil || !event.Equal(got, echo) {
			t.Errorf("got\n%v, %v, want\n%v", got, err, echo)
		}
	}
	var wg sync.WaitGroup
	for n := range 200 {
		wg.Go(func() {
			ask := makeEvent(t, "ask", n)
			got, err := r.Request(ctx, ask)
			if err != nil || got.Type() != "answer" || string(got.Data()) != string(ask.Data()) {
				t.Errorf("asked\n%v, got\n%v, %v", ask, got, err)
			}
		})
	}
	wg.Wait()
	if late := r.Late(); late != 0 {
		t.Errorf("%d replies were late", late)
	}

	// The subscription goes, as in an outage that outlasts its Expires.
	subs, err := b.Subscriptions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range subs {
		if s.Name != "replier" {
			if _, err := b.Delete(ctx, s.Subscription); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, err := r.Request(ctx, echo); err != nil || !event.Equal(got, echo) {
		t.Errorf("got\n%v, %v, want\n%v", got, err, echo)
	}

	waits := make(chan error, 1)
	go func() {
		_, err := r.Request(ctx, makeEvent(t, "nobody.knows", nil))
		waits <- err
	}()
	fence, err := b.Subscribe(ctx, messaging.Subscription{Name: "fence", Types: []string{"nobody.knows"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fence.Receive(ctx); err != nil { // it was published
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, messaging.ErrClosed) {
		t.Errorf("Request = %v, want ErrClosed", err)
	}
	if subs, err = b.Subscriptions(ctx); err != nil || len(subs) != 2 {
		t.Errorf("subscriptions are %+v, %v, want those of replier and fence", subs, err)
	}
}
