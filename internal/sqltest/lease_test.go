package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/outbox"
)

// expire ends the lease of whoever has it, as if its time had run out.
func expire(t testing.TB, d database, db *sql.DB) {
	t.Helper()
	past := "0"
	if d.postgres() {
		past = "'2020-01-01'"
	}
	if _, err := db.Exec(`UPDATE outbox_lease SET expires_at = ` + past); err != nil {
		t.Fatal(err)
	}
}

// dead opens a source of a relay that dies: it is in a database of its own, whose
// connections end at once.
func dead(t testing.TB, d database, opts *outbox.Options) (src messaging.Source, die func()) {
	t.Helper()
	db, err := d.connect()
	if err != nil {
		t.Fatal(err)
	}
	ob, err := outbox.New(db, opts)
	if err != nil {
		t.Fatal(err)
	}
	if src, err = ob.Source(t.Context()); err != nil {
		t.Fatal(err)
	}
	return src, func() {
		_ = db.Close()
		_ = src.Close() // it fails, if it held the lease
	}
}

// quiet are options whose reports nobody reads.
func quiet(o outbox.Options) *outbox.Options {
	o.Report = func(context.Context, error) {}
	return &o
}

// TestFenced has a relay lose its lease to another while it is at work: what it
// settles then changes nothing.
func TestFenced(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, quiet(outbox.Options{}))
		publish(t, db, ob, newEvent(t, "1", "a"), newEvent(t, "2", "b"), newEvent(t, "3", "c"))
		old := open(t, ob)
		one, two, three := receive(t, old, "1"), receive(t, old, "2"), receive(t, old, "3")

		expire(t, d, db)
		src := open(t, ob) // it takes the lease, and has what the other held
		again := receive(t, src, "1")
		if again.Info.Attempt != 2 {
			t.Errorf("attempt %d, want 2: one was lost", again.Info.Attempt)
		}
		if err := one.Ack(t.Context()); err != nil && !errors.Is(err, messaging.ErrLost) {
			t.Errorf("late ack: %v; want nil, if the loss is not known yet, or ErrLost", err)
		}
		waitFor(t, "the loss known", func() bool {
			_, err := two.Extend(t.Context())
			return errors.Is(err, messaging.ErrLost)
		})
		if err := three.Ack(t.Context()); !errors.Is(err, messaging.ErrLost) {
			t.Errorf("late ack: %v, want ErrLost", err)
		}
		if s, err := ob.Stats(t.Context()); err != nil || s.Pending != 3 {
			t.Errorf("stats %+v, %v: a late ack deleted", s, err)
		}
		if err := again.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"2", "3"} {
			if err := receive(t, src, id).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		empty(t, ob)
	})
}

// TestTakeover has the relay that works die, and another take over within Lease;
// then it is closed, and the next one takes over at once.
func TestTakeover(t *testing.T) {
	t.Parallel() // it mostly waits
	onEach(t, func(t *testing.T, d database) {
		const lease = time.Second
		db := d.open(t)
		opts := quiet(outbox.Options{Lease: lease})
		ob := newOutbox(t, db, opts)
		publish(t, db, ob, newEvent(t, "1", "a"), newEvent(t, "2", "b"))
		first, die := dead(t, d, opts)
		receive(t, first, "1")
		second := open(t, ob)
		began := time.Now()
		die()
		one := receive(t, second, "1")
		if took := time.Since(began); took > 3*lease {
			t.Errorf("the takeover took %v, with a lease of %v", took, lease)
		}
		if err := one.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		third := open(t, ob)
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		two := receive(t, third, "2")
		if err := two.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		empty(t, ob)
	})
}

// TestPoison has an event that kills each relay that tries it: it reaches
// MaxAttempts and is parked, and takes hardly any others along.
func TestPoison(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		opts := quiet(outbox.Options{MaxAttempts: 5, Window: 32, Lease: 500 * time.Millisecond, Poll: 20 * time.Millisecond})
		ob := newOutbox(t, db, opts)
		for i := range 60 {
			id := fmt.Sprint(i)
			if i == 20 {
				id = "poison"
			}
			publish(t, db, ob, newEvent(t, id, id))
		}
		deaths := 0
		var done []string
		for len(done) < 59 && deaths < 20 {
			src, die := dead(t, d, opts)
			for len(done) < 59 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				d, err := src.Receive(ctx)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				if d.Value.ID() == "poison" {
					deaths++
					break
				}
				if err := d.Ack(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(done, d.Value.ID()) {
					done = append(done, d.Value.ID())
				}
			}
			if len(done) == 59 {
				_ = src.Close()
			}
			die()
		}
		if deaths != 5 {
			t.Errorf("it killed %d relays, want 5", deaths)
		}
		s := stats(t, ob, func(s outbox.Stats) bool { return s.Pending == 0 })
		if s.Parked != 1 {
			t.Errorf("%d parked, want the one", s.Parked)
		}
	})
}

// TestNotSettled has a delivery neither settled nor extended: the relay keeps the
// lease, and delivers it again [ACK-2].
func TestNotSettled(t *testing.T) {
	t.Parallel() // it mostly waits
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, &outbox.Options{Lease: time.Second, Window: 2})
		publish(t, db, ob, newEvent(t, "a1", "a"), newEvent(t, "a2", "a"), newEvent(t, "b", "b"))
		src := open(t, ob)
		first := receive(t, src, "a1")
		again := receive(t, src, "a2")
		if err := again.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d, err := src.Receive(t.Context()); err != nil || d.Value.ID() != "a2" {
			t.Fatalf("received %v, %v; want a2, as the first is out", d, err)
		}
		again = receive(t, src, "a1")
		if again.Info.Attempt != 2 {
			t.Errorf("attempt %d, want 2", again.Info.Attempt)
		}
		if err := first.Ack(t.Context()); !errors.Is(err, messaging.ErrLost) {
			t.Errorf("ack of the first delivery: %v, want ErrLost", err)
		}
		var term int
		if err := db.QueryRow(`SELECT term FROM outbox_lease`).Scan(&term); err != nil || term != 1 {
			t.Errorf("term %d, %v; want the first", term, err)
		}
		if err := again.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a2", "b"} {
			if err := receive(t, src, id).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		empty(t, ob)
	})
}

// TestNotSettledInTraffic is TestNotSettled while others come and go, with whom
// the relay renews the lease before that is due.
func TestNotSettledInTraffic(t *testing.T) {
	t.Parallel() // it mostly waits
	onEach(t, func(t *testing.T, d database) {
		const lease = time.Second
		db := d.open(t)
		ob := newOutbox(t, db, &outbox.Options{Lease: lease})
		src := open(t, ob)
		publish(t, db, ob, newEvent(t, "lost", "a"))
		deadline := receive(t, src, "lost").Deadline()
		for i := 0; ; i++ {
			id := fmt.Sprint(i)
			publish(t, db, ob, newEvent(t, id, id))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			got, err := src.Receive(ctx)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
			late := time.Since(deadline)
			if got.Value.ID() == "lost" {
				if late < 0 || got.Info.Attempt != 2 {
					t.Errorf("attempt %d, %v after the deadline; want the second, not before", got.Info.Attempt, late)
				}
				return
			}
			if late > 3*lease {
				t.Fatalf("not delivered again %v after its deadline, with a lease of %v", late, lease)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// TestKeepsTheLease has an event handled for longer than a lease.
func TestKeepsTheLease(t *testing.T) {
	t.Parallel() // it mostly waits
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, &outbox.Options{Lease: 1500 * time.Millisecond})
		publish(t, db, ob, newEvent(t, "1", "a"))
		one := receive(t, open(t, ob), "1")
		other := open(t, ob)
		for began := time.Now(); time.Since(began) < 4*time.Second; time.Sleep(20 * time.Millisecond) {
			if _, err := one.Extend(t.Context()); err != nil {
				t.Fatalf("extend after %v: %v", time.Since(began), err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if d, err := other.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another relay received %v, %v", d, err)
		}
		if err := one.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		empty(t, ob)
	})
}
