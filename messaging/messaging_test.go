package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// TestReport holds a Report to being called, and the zero one to logging.
func TestReport(t *testing.T) {
	boom := errors.New("boom")
	var got error
	messaging.Report(func(_ context.Context, err error) { got = err }).Do(t.Context(), boom)
	if got != boom {
		t.Errorf("reported %v, want %v", got, boom)
	}
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(before)
	messaging.Report(nil).Do(t.Context(), boom)
	if got := text.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "error=boom") {
		t.Errorf("logged %q, want a warning with the error", got)
	}
}

// TestReact holds it to subscribing, running and closing what it opened.
func TestReact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memory.New(nil)
		ctx, stop := context.WithCancel(t.Context())
		sub := messaging.Subscription{Name: "billing"}
		var handled []string
		done := make(chan error)
		go func() {
			done <- messaging.React(ctx, broker, sub, func(ctx context.Context, e event.Event) error {
				handled = append(handled, e.Type())
				if reactor.InfoFrom(ctx).Attempt < 2 {
					return errors.New("not yet")
				}
				return nil
			}, nil)
		}()
		synctest.Wait()
		if err := broker.Publish(t.Context(), newEvent(t, "a", nil)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stop()
		if err := <-done; err != nil {
			t.Errorf("React = %v, want nil", err)
		}
		if len(handled) != 2 {
			t.Errorf("handled %q, want a twice", handled)
		}
	})
}

// TestReactFails holds it to the errors of Subscribe and of Run.
func TestReactFails(t *testing.T) {
	nothing := func(context.Context, event.Event) error { return nil }
	broker := memory.New(nil)
	if err := messaging.React(t.Context(), broker, messaging.Subscription{Name: "!"}, nothing, nil); !errors.Is(err, messaging.ErrInvalid) {
		t.Errorf("React under a bad name = %v, want ErrInvalid", err)
	}
	sub := messaging.Subscription{Name: "billing"}
	if err := messaging.React(t.Context(), broker, sub, nil, nil); err == nil {
		t.Error("React without a handler = nil, want an error")
	}
	if err := messaging.React(t.Context(), broker, sub, nothing, &messaging.Options{Concurrency: -1}); err == nil {
		t.Error("React with bad options = nil, want an error")
	}
	_ = broker.Close()
	if err := messaging.React(t.Context(), broker, sub, nothing, nil); !errors.Is(err, messaging.ErrClosed) {
		t.Errorf("React on a closed broker = %v, want ErrClosed", err)
	}
}
