package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// receiveFaults are those of Subscribe, Receive and settling.
var receiveFaults = []fault{
	// Subscribe.
	{name: "ignores Start", breaks: "SUB-2 SUB-2/new_under_load", wrap: subscribes(func(sub *messaging.Subscription) { sub.Start = messaging.StartFirst() })},
	{name: "starts at new", breaks: "SUB-2 PUB-1 PUB-1/matching_subscriptions SUB-2/first", wrap: subscribes(func(sub *messaging.Subscription) { sub.Start = messaging.StartNew() })},
	{name: "starts one too late", breaks: "SUB-2 SUB-2/sequence SUB-2/sequence_ahead", wrap: subscribes(func(sub *messaging.Subscription) {
		if n, ok := sub.Start.Sequence(); ok {
			sub.Start = messaging.StartFrom(n + 1)
		}
	})},
	{name: "starts a nanosecond too late", breaks: "SUB-2 SUB-2/time", wrap: subscribes(func(sub *messaging.Subscription) {
		if t, ok := sub.Start.Time(); ok {
			sub.Start = messaging.StartAt(t.Add(1))
		}
	})},
	{name: "ignores conflicts", breaks: "SUB-4 SUB-4/no_conflict", wrap: func(b *bent) {
		first := make(map[string]messaging.Subscription)
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			b.mu.Lock()
			have, ok := first[sub.DeadLettersOf+" "+sub.Name]
			if !ok {
				have = sub
				first[sub.DeadLettersOf+" "+sub.Name] = sub
			}
			b.mu.Unlock()
			return b.Broker.Subscribe(ctx, have, report)
		}
	}},
	{name: "conflicts without values", breaks: "SUB-4 SUB-4/conflict SUB-4/conflict_expires", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			src, err := b.Broker.Subscribe(ctx, sub, report)
			if errors.Is(err, messaging.ErrConflict) {
				err = messaging.ErrConflict
			}
			return src, err
		}
	}},
	{name: "members have a copy each", breaks: "SUB-5", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			sub.Name = fmt.Sprintf("%s-%d", sub.Name, b.next("copy "+sub.Name))
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},
	{name: "starves a member", breaks: "SUB-5 SUB-5/split SUB-5/one_at_a_time SUB-5/one_in_flight", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			if s.member > 1 {
				return s.never(ctx)
			}
			return s.Source.Receive(ctx)
		}
	}},
	{name: "an idle member hoards", breaks: "SUB-5 SUB-5/idle_member RUN-10/RUN-6_panic RUN-10/RUN-9_settled_later", wrap: func(b *bent) {
		subscribe := b.Broker.Subscribe
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			src, err := subscribe(ctx, sub, report)
			if err != nil {
				return nil, err
			}
			return hoards(src, 7), nil
		}
	}},
	{name: "sanitises names", breaks: "SUB-7 SUB-7/exact", wrap: subscribes(func(sub *messaging.Subscription) { sub.Name = strings.ReplaceAll(sub.Name, "_", "-") })},
	{name: "folds names", breaks: "SUB-7 SUB-7/bad_names", wrap: subscribes(func(sub *messaging.Subscription) { sub.Name = strings.ToLower(sub.Name) })},
	{name: "filters by prefix", breaks: "SUB-8", wrap: filters(func(p, typ string) bool {
		return strings.HasPrefix(typ, strings.TrimRight(p, "*>")) || strings.ContainsAny(p, "*>")
	})},
	{name: "filters without case", breaks: "SUB-8", wrap: filters(func(p, typ string) bool {
		return matchTokens(strings.Split(strings.ToLower(p), "."), strings.Split(strings.ToLower(typ), "."))
	})},
	{name: "a pattern matches itself only", breaks: "SUB-8", wrap: filters(func(p, typ string) bool { return p == typ })},
	{name: "> is none or more tokens", breaks: "SUB-8", wrap: filters(func(p, typ string) bool {
		return matchTokens(strings.Split(p, "."), strings.Split(typ, ".")) || p == typ+".>"
	})},
	{name: "types are patterns", breaks: "SUB-8", wrap: filters(func(p, typ string) bool {
		return matchTokens(strings.Split(p, "."), strings.Split(typ, ".")) || matchTokens(strings.Split(typ, "."), strings.Split(p, "."))
	})},
	{name: "ignores Expires", breaks: "SUB-10 SUB-10/after", wrap: subscribes(func(sub *messaging.Subscription) { sub.Expires = 0 })},
	{name: "expires early", breaks: "SUB-10 SUB-7/other_settings_out_of_range SUB-10/not_before", wrap: subscribes(func(sub *messaging.Subscription) { sub.Expires = max(0, sub.Expires-2) })},
	{name: "takes what it does not declare", breaks: "CAP-1 CAP-1/positions CAP-1/expires", harness: func(h *Harness) { h.Capabilities &^= Positions | Expires }},

	// Receive and settle.
	{name: "ignores Receive's context", breaks: "RCV-1 PUB-1/silent_broker PUB-1/waiting_members PUB-1/while_a_handler_is_inside PUB-8/stored_is_delivered RCV-1/context", wrap: func(b *bent) {
		b.receive = func(_ context.Context, s *bentSource) (*messaging.Delivery, error) {
			return s.Source.Receive(context.Background())
		}
	}},
	{name: "a cancelled Receive takes", breaks: "RCV-1", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			d, err := s.Source.Receive(ctx)
			time.Sleep(time.Microsecond) // in a bubble: until it is cancelled, if it is to be
			if err == nil && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return d, err
		}
	}},
	{name: "Receive after Close waits", breaks: "RCV-1 CLS-1 CLS-1/during_receive RUN-3/drain RUN-10/RUN-3_drain", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			d, err := s.Source.Receive(ctx)
			if errors.Is(err, messaging.ErrClosed) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return d, err
		}
	}},
	{name: "attempt is always 1", breaks: "RCV-2 RUN-1 DLQ-1", wrap: tells(func(i *reactor.Info) { i.Attempt = 1 })},
	{name: "attempt is from 0", breaks: "RCV-2", wrap: tells(func(i *reactor.Info) { i.Attempt-- })},
	{name: "attempts are by member", breaks: "RCV-2 SUB-9 RUN-6/panic", wrap: func(b *bent) {
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			d.Info.Attempt = b.next(fmt.Sprint(s.sub.Name, s.member, d.Value.ID()))
			return d
		}
	}},
	{name: "forgets MaxAttempts in Info", breaks: "DLQ-1 RUN-5 DLQ-1/at_the_cap RUN-5/info RUN-10/RUN-5_info", wrap: tells(func(i *reactor.Info) { i.MaxAttempts = 0 })},
	{name: "two are out in strict order", breaks: "RCV-3/strict_order_and_death DLQ-3/strict_order RCV-3", wrap: subscribes(func(sub *messaging.Subscription) {
		if sub.MaxInFlight == 1 {
			sub.MaxInFlight = 2
		}
	})},
	{name: "a retried event has another sequence", breaks: "RUN-2/key RUN-10/RUN-2_key", wrap: tells(func(i *reactor.Info) {
		if i.Attempt > 1 {
			i.Sequence += 1 << 20
		}
	})},
	{name: "one too many is out", breaks: "DLQ-3/others_go_on RCV-4", wrap: subscribes(func(sub *messaging.Subscription) { sub.MaxInFlight++ })},
	{name: "no bound on what is out", breaks: "RCV-3 RCV-4 RUN-2 RCV-4/one_member RCV-4/two_members RUN-2/concurrency RUN-10/RUN-2_concurrency", wrap: subscribes(func(sub *messaging.Subscription) { sub.MaxInFlight = 0 })},
	{name: "reports nothing", breaks: "RET-3/told RET-3/while_a_member_is_open DLQ-3/strict_order RCV-5", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, _ messaging.Report) (messaging.Source, error) {
			return b.Broker.Subscribe(ctx, sub, func(context.Context, error) {})
		}
	}},
	{name: "checks what it delivers", breaks: "RCV-5 RCV-5/not_valid", wrap: func(b *bent) {
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if event.Check(d.Value) != nil {
				return nil
			}
			return d
		}
	}},
	{name: "redelivers 2 ns early", breaks: "ACK-2", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) {
			if sub.AckWait > 2 {
				sub.AckWait -= 2
			}
		})(b)
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, d.Deadline().Add(2), d)
		}
	}},
	{name: "redelivers late", breaks: "ACK-2 RCV-2", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) { sub.AckWait += 2 * time.Second })(b)
		b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, d.Deadline().Add(-2*time.Second), d)
		}
	}},
	{name: "never redelivers", breaks: "ACK-2 RCV-2 RUN-9/never_settled RUN-10/RUN-9_never_settled", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) { sub.AckWait = 10_000 * time.Hour })(b)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, time.Now().Add(s.sub.AckWait), d)
		}
	}},
	{name: "AckWait runs from Publish", breaks: "ACK-2 ACK-2/ack_wait ACK-2/starts_at_receive ACK-2/many", wrap: func(b *bent) {
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			return reactor.NewDelivery(d.Value, d.Info, d.Info.Stored.Add(s.sub.AckWait), d)
		}
	}},
	{name: "retries at once", breaks: "ACK-3 SUB-9 RUN-1 RUN-7 RUN-1/outcomes RUN-7/default_backoff RUN-10/RUN-1_outcomes RUN-10/RUN-7_default_backoff", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			o.After = 0
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "retries after a second at least", breaks: "ACK-3 RUN-6/recover RUN-10/RUN-6_recover", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			o.After = max(o.After, time.Second)
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "retries after an hour at most", breaks: "ACK-3", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			o.After = min(o.After, time.Hour)
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "a late settle settles", breaks: "ADM-2/stale ACK-7 ACK-7/late ACK-7/at_the_deadline RUN-5/lost RUN-5/lost_before_its_deadline RUN-10/RUN-5_lost RUN-10/RUN-5_lost_before_its_deadline", wrap: func(b *bent) {
		b.later = make(map[string]*messaging.Delivery)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.later[s.sub.Name+d.Value.ID()] = d
			return reactor.NewDelivery(d.Value, d.Info, time.Time{}, &lateSettler{b, s.sub.Name + d.Value.ID()})
		}
	}},
	{name: "settles only while receiving", breaks: "ACK-8 ACK-8/receiving_context_ended", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if err := d.ctx.Err(); err != nil {
				return err
			}
			return d.inner.Settle(ctx, o)
		}
	}},
	{name: "a Receive that waits is late for a deadline that came closer", breaks: "ADM-4/extend", wrap: func(b *bent) {
		var closer atomic.Int64
		b.extend = func(d *bentDelivery, ctx context.Context) (time.Time, error) {
			before := d.inner.Deadline()
			deadline, err := d.inner.Extend(ctx)
			if err == nil && deadline.Before(before) {
				closer.Add(1)
			}
			return deadline, err
		}
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			before := closer.Load()
			d, err := s.Source.Receive(ctx)
			if err == nil && closer.Load() != before {
				time.Sleep(time.Second)
			}
			return d, err
		}
	}},
	{name: "extends nothing", breaks: "RUN-4/second_try RUN-4/until_settled RUN-4/while_draining ACK-5 RUN-4", wrap: func(b *bent) {
		b.extend = func(d *bentDelivery, _ context.Context) (time.Time, error) {
			return time.Now().Add(d.source.sub.AckWait), nil
		}
	}},
	{name: "cannot extend", breaks: "ACK-5 RUN-4 ACK-5/deadline RUN-4/extended RUN-10/RUN-4_extended RUN-10/RUN-4_second_try RUN-10/RUN-4_until_settled RUN-10/RUN-4_while_draining", wrap: func(b *bent) {
		b.extend = func(*bentDelivery, context.Context) (time.Time, error) {
			return time.Time{}, errors.ErrUnsupported
		}
	}},
}

// hoards prefetches: more than a member may.
func hoards(src messaging.Source, n int) messaging.Source {
	ctx, stop := context.WithCancel(context.Background())
	h := &hoarder{Source: src, stop: stop, events: make(chan *messaging.Delivery, n)}
	h.done.Go(func() {
		for {
			d, err := src.Receive(ctx)
			if err != nil {
				close(h.events)
				return
			}
			select {
			case h.events <- d:
			case <-ctx.Done():
			}
		}
	})
	return h
}

type hoarder struct {
	messaging.Source
	events chan *messaging.Delivery
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func (h *hoarder) Receive(ctx context.Context) (*messaging.Delivery, error) {
	select {
	case d, ok := <-h.events:
		if !ok {
			return nil, messaging.ErrClosed
		}
		return d, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *hoarder) Close() error {
	h.stop()
	h.done.Wait()
	return h.Source.Close()
}

// lateSettler settles whatever delivery of the event is the last.
type lateSettler struct {
	b   *bent
	key string
}

func (l *lateSettler) latest() *messaging.Delivery {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.b.later[l.key]
}

func (l *lateSettler) Settle(ctx context.Context, o reactor.Outcome) error {
	return l.latest().Settle(ctx, o)
}

func (l *lateSettler) Extend(ctx context.Context) (time.Time, error) { return l.latest().Extend(ctx) }

// registersLater is a source whose subscription is made a little later.
func registersLater(b Broker, sub messaging.Subscription, report messaging.Report) messaging.Source {
	l := &lateSource{ready: make(chan struct{})}
	go func() {
		defer close(l.ready)
		time.Sleep(time.Millisecond)
		l.src, l.err = b.Subscribe(context.Background(), sub, report)
	}()
	return l
}

type lateSource struct {
	ready chan struct{}
	src   messaging.Source
	err   error
}

func (l *lateSource) Receive(ctx context.Context) (*messaging.Delivery, error) {
	<-l.ready
	if l.err != nil {
		return nil, l.err
	}
	return l.src.Receive(ctx)
}

func (l *lateSource) Close() error {
	<-l.ready
	if l.err != nil {
		return nil
	}
	return l.src.Close()
}
