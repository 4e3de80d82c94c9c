package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

func run9(e *env) {
	b := e.open()
	sub := e.sub()
	events := e.events(4, "run.settle")
	e.publish(b, events...)
	var tries atomic.Int64
	src := &wrapped{Source: e.subscribe(b, sub), settle: func(reactor.Outcome) error {
		if tries.Add(1)%4 != 0 {
			return errTemporary
		}
		return nil
	}}
	var handled calls
	var mu sync.Mutex
	var failed, settled int
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		handled.add(ctx, ev)
		if ev.ID() == events[2].ID() {
			return reactor.Reject(errors.New("a failure"))
		}
		return nil
	}, &messaging.Options{Observer: &messaging.Observer{
		Settled: func(_ event.Event, _ reactor.Info, s reactor.Settlement) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case s.Err == nil:
				settled++
			case errors.Is(s.Err, errTemporary):
				failed++
			}
		},
	}})
	for end := time.Now().Add(e.lenient(10 * e.AckWait)); time.Now().Before(end); {
		e.pause(e.AckWait / 50)
		mu.Lock()
		enough := settled == 4
		mu.Unlock()
		if enough {
			break
		}
	}
	r.stop()
	for _, ev := range events {
		if n := len(handled.of(ev.ID())); n != 1 {
			e.failf("event %s was handled %d times: its settle failed three times and then worked", ev.ID(), n)
		}
	}
	if settled != 4 || failed != 12 {
		e.failf("the observer was told of %d settles that worked (want 4) and %d that failed (want 12)", settled, failed)
	}
	src2 := e.subscribe(b, sub)
	e.fence(b, src2, "run.settle")
	e.quiet(src2, e.absence())
}

// Where the broker stays out of reach, each delivery is handled once and then
// lost, and the next one is another attempt.
func run9Never(e *env) {
	b := e.open()
	sub := e.short()
	src := &wrapped{
		Source: e.subscribe(b, sub),
		settle: func(reactor.Outcome) error { return errTemporary },
		extend: func() error { return errTemporary },
	}
	ev := e.event("run.never")
	e.publish(b, ev)
	var handled calls
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		handled.add(ctx, ev)
		return nil
	}, nil)
	for end := time.Now().Add(e.lenient(5 * e.AckWait)); handled.len() < 3 && time.Now().Before(end); {
		e.pause(e.AckWait / 20)
	}
	r.cancel()
	e.ok(r.wait(e.lenient(2*e.AckWait)), "Run whose context ended")
	e.given("when no delivery could be settled, and each AckWait of %v had run out", e.AckWait)
	e.between(&handled, ev.ID(), 1, e.AckWait/2, e.lenient(e.AckWait))
	e.between(&handled, ev.ID(), 2, e.AckWait/2, e.lenient(e.AckWait))
}

// wrapped is a source that something is done to. Its functions may be nil.
type wrapped struct {
	messaging.Source
	receive  func() error                // before Receive; an error instead of it
	received func(*messaging.Delivery)   // after it
	settle   func(reactor.Outcome) error // before a settle; an error instead of it
	extend   func() error                // before Extend; an error instead of it
	closes   atomic.Int64
}

func (w *wrapped) Receive(ctx context.Context) (*messaging.Delivery, error) {
	if w.receive != nil {
		if err := w.receive(); err != nil {
			return nil, err
		}
	}
	d, err := w.Source.Receive(ctx)
	if err != nil {
		return nil, err
	}
	if w.received != nil {
		w.received(d)
	}
	return reactor.NewDelivery(d.Value, d.Info, d.Deadline(), &wrappedDelivery{d, w}), nil
}

func (w *wrapped) Close() error {
	w.closes.Add(1)
	return w.Source.Close()
}

type wrappedDelivery struct {
	delivery *messaging.Delivery
	source   *wrapped
}

func (d *wrappedDelivery) Settle(ctx context.Context, o reactor.Outcome) error {
	if d.source.settle != nil {
		if err := d.source.settle(o); err != nil {
			return err
		}
	}
	return d.delivery.Settle(ctx, o)
}

func (d *wrappedDelivery) Extend(ctx context.Context) (time.Time, error) {
	if d.source.extend != nil {
		if err := d.source.extend(); err != nil {
			return time.Time{}, err
		}
	}
	return d.delivery.Extend(ctx)
}
