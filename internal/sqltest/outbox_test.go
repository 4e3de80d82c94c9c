package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/outbox"
	"github.com/catchment-events/catchment/provider/memory"
)

// patience is how long tests wait for what must happen.
const patience = 30 * time.Second

// newOutbox returns an outbox with its tables.
func newOutbox(t testing.TB, db *sql.DB, opts *outbox.Options) *outbox.Outbox {
	t.Helper()
	ob, err := outbox.New(db, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := ob.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ob
}

// newEvent returns an event with an id and a key.
func newEvent(t testing.TB, id, key string) event.Event {
	t.Helper()
	e, err := event.New("/test", "thing.changed", map[string]string{"id": id})
	if err != nil {
		t.Fatal(err)
	}
	e.SetID(id)
	if key != "" {
		e.SetExtension("partitionkey", key)
	}
	return e
}

// publish publishes events in one transaction.
func publish(t testing.TB, db *sql.DB, ob *outbox.Outbox, events ...event.Event) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := ob.In(tx).Publish(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// open opens a source until the test has ended.
func open(t testing.TB, ob *outbox.Outbox) messaging.Source {
	t.Helper()
	src, err := ob.Source(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// receive receives a delivery, which must be of the event with the id.
func receive(t testing.TB, src messaging.Source, id string) *messaging.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := src.Receive(ctx)
	if err != nil {
		t.Fatalf("receive %s: %v", id, err)
	}
	if d.Value.ID() != id {
		t.Fatalf("received %s, want %s", d.Value.ID(), id)
	}
	return d
}

// empty waits until nothing waits in the outbox.
func empty(t testing.TB, ob *outbox.Outbox) outbox.Stats {
	t.Helper()
	return stats(t, ob, func(s outbox.Stats) bool { return s.Pending == 0 })
}

// stats waits for the outbox to be in a state.
func stats(t testing.TB, ob *outbox.Outbox, want func(outbox.Stats) bool) outbox.Stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		s, err := ob.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if want(s) {
			return s
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// relay runs a relay until the returned function is called, which returns what
// the relay did.
func relay(t testing.TB, ob *outbox.Outbox, p messaging.Publisher, opts *messaging.Options) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ob.Relay(p, opts).Run(ctx) }()
	called := false
	stop = func() error {
		if called {
			return nil
		}
		called = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return stop
}

// everything returns what a broker has stored, in order.
func everything(t testing.TB, b messaging.Broker) (events []event.Event) {
	t.Helper()
	sub := messaging.Subscription{Name: fmt.Sprintf("reads-%d", time.Now().UnixNano())}
	err := messaging.React(t.Context(), b, sub, func(_ context.Context, e event.Event) error {
		events = append(events, e)
		return nil
	}, &messaging.Options{IdleTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func ids(events []event.Event) (list []string) {
	for _, e := range events {
		list = append(list, e.ID())
	}
	return list
}

func TestCommittedIsRelayed(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		broker := memory.New(nil)
		defer broker.Close()
		stop := relay(t, ob, broker, nil)

		publish(t, db, ob, newEvent(t, "1", "a"), newEvent(t, "2", "a"), newEvent(t, "3", ""))
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := ob.In(tx).Publish(t.Context(), newEvent(t, "rolled back", "a")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		publish(t, db, ob, newEvent(t, "4", "b"))
		empty(t, ob)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"1", "2", "3", "4"}, ids(everything(t, broker))); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	})
}

func TestSettle(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		publish(t, db, ob, newEvent(t, "1", "a"), newEvent(t, "2", "b"), newEvent(t, "3", "c"))
		src := open(t, ob)
		ctx := t.Context()

		one := receive(t, src, "1")
		if one.Info.Attempt != 1 || one.Info.Sequence != 1 || time.Since(one.Info.Stored) > patience {
			t.Errorf("info %+v", one.Info)
		}
		two := receive(t, src, "2")
		if err := one.Retry(ctx, 0); err != nil {
			t.Fatal(err)
		}
		three := receive(t, src, "3")
		if err := three.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if again := receive(t, src, "3"); again.Info.Attempt != 1 {
			t.Errorf("attempt %d after a release, want 1", again.Info.Attempt)
		} else if err := again.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		one = receive(t, src, "1")
		if one.Info.Attempt != 2 {
			t.Errorf("attempt %d after a retry, want 2", one.Info.Attempt)
		}
		if err := one.Reject(ctx, "it is\nno good"); err != nil {
			t.Fatal(err)
		}
		if err := two.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
		if err := two.Ack(ctx); !errors.Is(err, messaging.ErrLost) && err == nil {
			t.Error("ack after close: nil")
		}
		if _, err := src.Receive(ctx); !errors.Is(err, messaging.ErrClosed) {
			t.Errorf("receive after close: %v, want ErrClosed", err)
		}
		if s, err := ob.Stats(ctx); err != nil || s != (outbox.Stats{Parked: 1}) {
			t.Errorf("stats %+v, %v; want one parked", s, err)
		}
		parked, err := ob.Parked(ctx, 0, 10)
		if err != nil || len(parked) != 1 {
			t.Fatalf("parked %v, %v; want one", parked, err)
		}
		p := parked[0]
		if p.Reason != "it is no good" || p.Attempts != 2 || p.Sequence != 1 || !event.Equal(p.Event, newEvent(t, "1", "a")) && p.Event.ID() != "1" {
			t.Errorf("parked %+v", p)
		}
		if n, err := ob.Retry(ctx, p.Sequence, 77); n != 1 || err != nil {
			t.Fatalf("retry: %d, %v; want 1", n, err)
		}
		last := receive(t, open(t, ob), "1")
		if last.Info.Attempt != 1 {
			t.Errorf("attempt %d of a retried event, want 1", last.Info.Attempt)
		}
		if err := last.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		empty(t, ob)
	})
}
