package messaging

import (
	"context"
	"log/slog"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// Observe returns b with an observer, which is told of each Publish, and, as
// Error, what subscriptions report; that is not logged then.
func Observe(b Broker, o *Observer) Broker {
	if o == nil {
		return b
	}
	return &observed{b, o}
}

type observed struct {
	Broker
	observer *Observer
}

// Unwrap returns the broker that is observed.
func (b *observed) Unwrap() Broker { return b.Broker }

func (b *observed) Publish(ctx context.Context, events ...event.Event) error {
	if b.observer.Published == nil {
		return b.Broker.Publish(ctx, events...)
	}
	began := time.Now()
	err := b.Broker.Publish(ctx, events...)
	b.observer.Published(events, time.Since(began), err)
	return err
}

func (b *observed) Subscribe(ctx context.Context, sub Subscription, report Report) (Source, error) {
	return b.Broker.Subscribe(ctx, sub, reportTo(b.observer, report))
}

// reportTo returns a report that tells an observer, too.
func reportTo(o *Observer, report Report) Report {
	if o == nil || o.Error == nil {
		return report
	}
	return func(ctx context.Context, err error) {
		o.Error(err)
		if report != nil {
			report(ctx, err)
		}
	}
}

// Log returns an observer that logs all it is told, without data: what works at
// level debug, states and releases at info, retries and trouble at warn, and at
// error what is rejected, dies, or cannot be settled or published.
func Log(l *slog.Logger) *Observer {
	ctx := context.Background()
	return &Observer{
		Received: func(e event.Event, info reactor.Info) {
			l.LogAttrs(ctx, slog.LevelDebug, "received", attributes(e, info)...)
		},
		Settled: func(e event.Event, info reactor.Info, s reactor.Settlement) {
			level := levelOf(info, s)
			if !l.Enabled(ctx, level) {
				return
			}
			attrs := append(attributes(e, info), slog.Duration("took", s.Duration))
			if s.Cause != nil {
				attrs = append(attrs, slog.String("cause", s.Cause.Error()))
			}
			if s.Outcome.Result == reactor.Retried {
				attrs = append(attrs, slog.Duration("after", s.Outcome.After))
			}
			if s.Err != nil {
				attrs = append(attrs, slog.String("error", s.Err.Error()))
			}
			l.LogAttrs(ctx, level, s.Outcome.Result.String(), attrs...)
		},
		State: func(name string, s reactor.Status) {
			if s.Err != nil {
				l.LogAttrs(ctx, slog.LevelError, "reactor "+s.State.String(), slog.String("reactor", name), slog.String("error", s.Err.Error()))
				return
			}
			l.LogAttrs(ctx, slog.LevelInfo, "reactor "+s.State.String(), slog.String("reactor", name))
		},
		Error: func(err error) {
			l.LogAttrs(ctx, slog.LevelWarn, "trouble", slog.String("error", err.Error()))
		},
		Published: func(events []event.Event, took time.Duration, err error) {
			if err != nil {
				l.LogAttrs(ctx, slog.LevelError, "publish failed", slog.Int("events", len(events)), slog.Duration("took", took), slog.String("error", err.Error()))
				return
			}
			l.LogAttrs(ctx, slog.LevelDebug, "published", slog.Int("events", len(events)), slog.Duration("took", took))
		},
	}
}

func levelOf(info reactor.Info, s reactor.Settlement) slog.Level {
	switch {
	case s.Err != nil, s.Outcome.Result == reactor.Rejected, s.Outcome.Result == reactor.Retried && info.Last():
		return slog.LevelError
	case s.Outcome.Result == reactor.Retried:
		return slog.LevelWarn
	case s.Outcome.Result == reactor.Released:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func attributes(e event.Event, info reactor.Info) []slog.Attr {
	return []slog.Attr{
		slog.String("id", e.ID()), slog.String("source", e.Source()), slog.String("type", e.Type()),
		slog.Int("attempt", info.Attempt), slog.Uint64("sequence", info.Sequence),
	}
}

// StateEvents returns an observer that publishes an event from source when a
// reactor runs, has stopped, finished or failed, of type
// catchment.reactor.ready, .stopped, .finished or .abnormal, with its name as
// subject and data {"state":"failed","error":"…"}, within 5 s; or logs why not.
func StateEvents(p Publisher, source string) *Observer {
	types := map[reactor.State]string{
		reactor.Running:  "ready",
		reactor.Stopped:  "stopped",
		reactor.Finished: "finished",
		reactor.Failed:   "abnormal",
	}
	return &Observer{State: func(name string, s reactor.Status) {
		typ, ok := types[s.State]
		if !ok {
			return
		}
		data := struct {
			State string `json:"state"`
			Error string `json:"error,omitempty"`
		}{State: s.State.String()}
		if s.Err != nil {
			data.Error = s.Err.Error()
		}
		e, err := event.New(source, "catchment.reactor."+typ, data)
		if err == nil {
			e.SetSubject(name)
			e.SetTime(s.Since)
			ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
			defer cancel()
			err = p.Publish(ctx, e)
		}
		if err != nil {
			slog.Default().Warn("a reactor's state was not published", "reactor", name, "state", s.State.String(), "error", err)
		}
	}}
}

const stateTimeout = 5 * time.Second
