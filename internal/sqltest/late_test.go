package sqltest_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/outbox"
)

// TestLateCommit has transactions commit long after later ones: a cursor would
// have passed them over.
func TestLateCommit(t *testing.T) {
	t.Parallel()     // it mostly waits
	d := postgres(t) // SQLite has one writer at a time
	db := d.open(t)
	ob := newOutbox(t, db, nil)
	p := &stubborn{}
	relay(t, ob, p, nil)
	var open []*sql.Tx
	for i := range 5 {
		open = append(open, uncommitted(t, db, ob, newEvent(t, fmt.Sprint("late ", i), "")))
	}
	for i, tx := range open {
		fence := fmt.Sprint("after ", i)
		for n := range 4 { // up to four seconds: beyond what is looked back for
			publish(t, db, ob, newEvent(t, fmt.Sprint(fence, n), ""))
			waitFor(t, "fence published", func() bool { return slices.Contains(p.published(), fmt.Sprint(fence, n)) })
			if i == 4 {
				time.Sleep(time.Second)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		waitFor(t, "late commit published", func() bool { return slices.Contains(p.published(), fmt.Sprint("late ", i)) })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it was found after %v", took)
		}
	}
}

// uncommitted publishes an event, and leaves the commit to the caller.
func uncommitted(t *testing.T, db *sql.DB, ob *outbox.Outbox, e event.Event) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ob.In(tx).Publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestLateByAMoment has transactions commit a little after later ones, which is
// what happens all the time: they are found at once, not by a sweep now and then.
func TestLateByAMoment(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	ob := newOutbox(t, db, nil)
	p := &stubborn{}
	relay(t, ob, p, nil)
	var took time.Duration
	for i := range 20 {
		tx := uncommitted(t, db, ob, newEvent(t, fmt.Sprint("late ", i), ""))
		publish(t, db, ob, newEvent(t, fmt.Sprint("fence ", i), ""))
		waitFor(t, "fence published", func() bool { return slices.Contains(p.published(), fmt.Sprint("fence ", i)) })
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		ob.Wake()
		began := time.Now()
		waitFor(t, "late commit published", func() bool { return slices.Contains(p.published(), fmt.Sprint("late ", i)) })
		took += time.Since(began)
	}
	if took > 5*time.Second {
		t.Errorf("20 were found after %v, all together", took)
	}
}

// TestDelaySurvives has the delay of a retry known to the next relay, too, and the
// events of the key wait with it.
func TestDelaySurvives(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		publish(t, db, ob, newEvent(t, "a1", "a"), newEvent(t, "a2", "a"), newEvent(t, "b1", "b"))
		first := open(t, ob)
		if err := receive(t, first, "a1").Retry(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := open(t, ob)
		if err := receive(t, second, "b1").Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		publish(t, db, ob, newEvent(t, "a3", "a"), newEvent(t, "b2", "b"))
		if err := receive(t, second, "b2").Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(`UPDATE outbox SET next_at = created_at WHERE id = 'a1'`); err != nil {
			t.Fatal(err)
		}
		third := open(t, ob)
		for _, id := range []string{"a1", "a2", "a3"} {
			if err := receive(t, third, id).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRetryIsPrompt has an event fail again and again: it is fetched when it is
// due, and not by a sweep.
func TestRetryIsPrompt(t *testing.T) {
	t.Parallel() // it mostly waits
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		publish(t, db, ob, newEvent(t, "1", "a"), newEvent(t, "2", "b"))
		src := open(t, ob)
		one := receive(t, src, "1")
		if err := receive(t, src, "2").Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 25 { // others go by, until nobody looks back that far
			time.Sleep(100 * time.Millisecond)
			id := fmt.Sprint("other ", i)
			publish(t, db, ob, newEvent(t, id, "b"))
			if err := receive(t, src, id).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for range 20 {
			if err := one.Retry(t.Context(), time.Millisecond); err != nil {
				t.Fatal(err)
			}
			one = receive(t, src, "1")
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("20 retries after a millisecond took %v", took)
		}
		if one.Info.Attempt != 21 {
			t.Errorf("attempt %d, want 21", one.Info.Attempt)
		}
		if err := one.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		empty(t, ob)
	})
}

// TestLateKeepsItsKey has transactions that write events of one key run one after
// another, of which the first takes long to commit: its event comes first.
func TestLateKeepsItsKey(t *testing.T) {
	t.Parallel() // it mostly waits
	d := postgres(t)
	db := d.open(t)
	ob := newOutbox(t, db, nil)
	p := &stubborn{}
	relay(t, ob, p, nil)
	var want []string
	for i := range 2 {
		key := fmt.Sprint("key ", i)
		first, second := fmt.Sprint("first ", i), fmt.Sprint("second ", i)
		want = append(want, first, second)
		tx := uncommitted(t, db, ob, newEvent(t, first, key))
		others(t, db, ob, p, fmt.Sprint(i))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		publish(t, db, ob, newEvent(t, second, key))
		waitFor(t, "second published", func() bool { return slices.Contains(p.published(), second) })
	}
	got := slices.DeleteFunc(p.published(), func(id string) bool { return strings.HasPrefix(id, "other") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

// TestNumberedFirst has a writer wait in the middle of its only statement, for
// another one of the same event: its transaction has a number by then, as its row
// has, and is known to be under way.
func TestNumberedFirst(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	ob := newOutbox(t, db, nil)
	twin := uncommitted(t, db, ob, newEvent(t, "1", ""))
	ended := make(chan error, 1)
	go func() { ended <- ob.In(db).Publish(t.Context(), newEvent(t, "1", "")) }()
	waitsForLock(t, d, db, "outbox")
	if n := count(t, db, `SELECT count(backend_xid) FROM pg_stat_activity
		WHERE application_name = current_setting('application_name') AND wait_event_type = 'Lock'`); n != 1 {
		t.Errorf("%d transactions that wait have a number, want the one", n)
	}
	if err := errors.Join(twin.Rollback(), <-ended); err != nil {
		t.Error(err)
	}
}

// others publishes other events for 2.5 seconds, and waits for the last one.
func others(t *testing.T, db *sql.DB, ob *outbox.Outbox, p *stubborn, name string) {
	t.Helper()
	var id string
	for n := range 25 {
		time.Sleep(100 * time.Millisecond)
		id = fmt.Sprint("other ", name, " ", n)
		publish(t, db, ob, newEvent(t, id, ""))
	}
	waitFor(t, "others published", func() bool { return slices.Contains(p.published(), id) })
}
