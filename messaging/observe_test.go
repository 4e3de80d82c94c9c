package messaging_test

import (
	"context"
	"errors"
	"log/slog"
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

// TestReportReachesObserver has a message that is no event: React, NewReactor
// and Observe tell the observer, and a Report that is given as well.
func TestReportReachesObserver(t *testing.T) {
	nothing := func(context.Context, event.Event) error { return nil }
	sub := messaging.Subscription{Name: "a"}
	for name, run := range map[string]func(ctx context.Context, b messaging.Broker, o *messaging.Observer, reported *[]error) error{
		"React": func(ctx context.Context, b messaging.Broker, o *messaging.Observer, reported *[]error) error {
			return messaging.React(ctx, b, sub, nothing, &messaging.Options{Observer: o, IdleTimeout: time.Second})
		},
		"NewReactor": func(ctx context.Context, b messaging.Broker, o *messaging.Observer, reported *[]error) error {
			return messaging.NewReactor(b, sub, nothing, &messaging.Options{Observer: o, IdleTimeout: time.Second}).Run(ctx)
		},
		"Observe": func(ctx context.Context, b messaging.Broker, o *messaging.Observer, reported *[]error) error {
			src, err := messaging.Observe(b, o).Subscribe(ctx, sub, func(_ context.Context, err error) { *reported = append(*reported, err) })
			if err != nil {
				return err
			}
			return reactor.Run(ctx, src, nothing, &messaging.Options{IdleTimeout: time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(nil)
				defer b.Close()
				b.Inject(nil, []byte("no event"))
				var observed, reported []error
				o := &messaging.Observer{Error: func(err error) { observed = append(observed, err) }}
				if err := run(t.Context(), b, o, &reported); err != nil {
					t.Fatal(err)
				}
				if len(observed) != 1 {
					t.Fatalf("observed %v, want one error", observed)
				}
				if _, ok := errors.AsType[*messaging.DecodeError](observed[0]); !ok {
					t.Errorf("observed %v, want a DecodeError", observed[0])
				}
				if name == "Observe" && len(reported) != 1 {
					t.Errorf("reported %v, want the same", reported)
				}
			})
		})
	}
}

// TestObserveByNobody has no observer, as Options may have none.
func TestObserveByNobody(t *testing.T) {
	b := memory.New(nil)
	defer b.Close()
	if got := messaging.Observe(b, nil); got != messaging.Broker(b) {
		t.Errorf("Observe(b, nil) is %v, want b", got)
	}
}

// A levels is a slog.Handler that keeps levels and messages.
type levels struct{ lines []string }

func (l *levels) Enabled(context.Context, slog.Level) bool { return true }
func (l *levels) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *levels) WithGroup(string) slog.Handler            { return l }
func (l *levels) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "cause" || a.Key == "error" || a.Key == "after" {
			line += " " + a.String()
		}
		return true
	})
	l.lines = append(l.lines, line)
	return nil
}

// TestLog holds the levels to what operators look for.
func TestLog(t *testing.T) {
	var got levels
	o := messaging.Log(slog.New(&got))
	e, err := event.New("/a", "b", "secret")
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	outcome := func(r reactor.Result, after time.Duration) reactor.Outcome {
		return reactor.Outcome{Result: r, After: after}
	}
	o.Received(e, reactor.Info{Attempt: 1})
	o.Settled(e, reactor.Info{Attempt: 1}, reactor.Settlement{Outcome: outcome(reactor.Acked, 0)})
	o.Settled(e, reactor.Info{Attempt: 1}, reactor.Settlement{Outcome: outcome(reactor.Released, 0)})
	o.Settled(e, reactor.Info{Attempt: 1, MaxAttempts: 2}, reactor.Settlement{Outcome: outcome(reactor.Retried, time.Second), Cause: boom})
	o.Settled(e, reactor.Info{Attempt: 2, MaxAttempts: 2}, reactor.Settlement{Outcome: outcome(reactor.Retried, time.Second), Cause: boom})
	o.Settled(e, reactor.Info{Attempt: 1}, reactor.Settlement{Outcome: outcome(reactor.Rejected, 0), Cause: boom})
	o.Settled(e, reactor.Info{Attempt: 1}, reactor.Settlement{Outcome: outcome(reactor.Acked, 0), Err: reactor.ErrLost})
	o.State("r", reactor.Status{State: reactor.Running})
	o.State("r", reactor.Status{State: reactor.Failed, Err: boom})
	o.Error(boom)
	o.Published([]event.Event{e}, time.Second, nil)
	o.Published([]event.Event{e}, time.Second, boom)
	want := []string{
		"DEBUG received",
		"DEBUG acked",
		"INFO released",
		"WARN retried cause=boom after=1s",
		"ERROR retried cause=boom after=1s",
		"ERROR rejected cause=boom",
		"ERROR acked error=reactor: delivery is lost",
		"INFO reactor running",
		"ERROR reactor failed error=boom",
		"WARN trouble error=boom",
		"DEBUG published",
		"ERROR publish failed error=boom",
	}
	if diff := cmp.Diff(want, got.lines); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
	if strings.Contains(strings.Join(got.lines, " "), "secret") {
		t.Error("data was logged")
	}
}

// TestStateEvents has a reactor that fails, and one that is stopped.
func TestStateEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		defer b.Close()
		opts := &messaging.Options{Observer: messaging.StateEvents(b, "/service")}
		failing := reactor.New("failing", func(context.Context) (messaging.Source, error) { return nil, errors.New("boom") },
			func(context.Context, event.Event) error { return nil }, opts)
		if err := failing.Run(t.Context()); err == nil {
			t.Error("Run returned nil")
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		sub := messaging.Subscription{Name: "stopped", Types: []string{"x"}}
		if err := messaging.NewReactor(b, sub, func(context.Context, event.Event) error { return nil }, opts).Run(ctx); err != nil {
			t.Error(err)
		}
		var got []string
		err := messaging.React(t.Context(), b, messaging.Subscription{Name: "states"}, func(_ context.Context, e event.Event) error {
			got = append(got, e.Source()+" "+e.Subject()+" "+e.Type()+" "+string(e.Data()))
			return nil
		}, &messaging.Options{IdleTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			`/service failing catchment.reactor.abnormal {"state":"failed","error":"reactor \"failing\": boom"}`,
			`/service stopped catchment.reactor.ready {"state":"running"}`,
			`/service stopped catchment.reactor.stopped {"state":"stopped"}`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	})
}

// TestStateEventsWithoutBroker has a broker that is closed: the reactor does not
// mind.
func TestStateEventsWithoutBroker(t *testing.T) {
	var got levels
	old := slog.Default()
	slog.SetDefault(slog.New(&got))
	defer slog.SetDefault(old)
	closed := memory.New(nil)
	closed.Close()
	b := memory.New(nil)
	defer b.Close()
	err := messaging.NewReactor(b, messaging.Subscription{Name: "a"}, func(context.Context, event.Event) error { return nil },
		&messaging.Options{Observer: messaging.StateEvents(closed, "/service"), IdleTimeout: time.Millisecond}).Run(t.Context())
	if err != nil {
		t.Error(err)
	}
	want := []string{
		"WARN a reactor's state was not published error=reactor: closed",
		"WARN a reactor's state was not published error=reactor: closed",
	}
	if diff := cmp.Diff(want, got.lines); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}
