package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/inbox"
)

// newInbox returns an inbox with its tables, and a table for effects.
func newInbox(t testing.TB, db *sql.DB, opts *inbox.Options) *inbox.Inbox {
	t.Helper()
	in, err := inbox.New(db, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS effects (subscription TEXT, id TEXT)`); err != nil {
		t.Fatal(err)
	}
	return in
}

// effect is a handler that leaves a row.
func effect(subscription string) inbox.Handler {
	return func(ctx context.Context, tx *sql.Tx, e event.Event) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1, $2)`, subscription, e.ID())
		return err
	}
}

func count(t testing.TB, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHandledOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		in := newInbox(t, db, nil)
		long := newEvent(t, noise(5000), "a")
		other := newEvent(t, "1", "a")
		other.SetSource("/other")
		for _, h := range []messaging.Handler{in.Handler("stock", effect("stock")), in.Handler("bills", effect("bills"))} {
			for range 3 {
				for _, e := range []event.Event{newEvent(t, "1", "a"), other, long} {
					if err := h(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if n := count(t, db, `SELECT count(*) FROM effects`); n != 6 {
			t.Errorf("%d effects of three events in two subscriptions, want 6", n)
		}
	})
}

// TestForeignIdentity has events that others published, with what PostgreSQL has no
// text for: they are handled once, too [RCV-5].
func TestForeignIdentity(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		in := newInbox(t, db, nil)
		calls := 0
		h := in.Handler("stock", func(context.Context, *sql.Tx, event.Event) error { calls++; return nil })
		ids := []string{"a\x00b", "a\x00c", "a\xffb", "a\xfeb", "ab"}
		for range 2 {
			for _, id := range ids {
				if err := h(t.Context(), newEvent(t, id, "")); err != nil {
					t.Errorf("%q: %v", id, err)
				}
			}
		}
		if calls != len(ids) {
			t.Errorf("%d calls for %d events", calls, len(ids))
		}
	})
}

func TestFailureLeavesNoNote(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		in := newInbox(t, db, nil)
		broken := errors.New("broken")
		fails := true
		h := in.Handler("stock", func(ctx context.Context, tx *sql.Tx, e event.Event) error {
			if err := effect("stock")(ctx, tx, e); err != nil {
				return err
			}
			if fails {
				return broken
			}
			return nil
		})
		e := newEvent(t, "1", "a")
		if err := h(t.Context(), e); !errors.Is(err, broken) {
			t.Fatalf("%v, want what the handler returned", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = in.Handler("stock", func(context.Context, *sql.Tx, event.Event) error { panic("broken") })(t.Context(), e)
		}()
		fails = false
		if err := h(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if n := count(t, db, `SELECT count(*) FROM effects`); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}

// TestTwins has two deliveries of an event handled at the same time: the second
// waits for what becomes of the first.
func TestTwins(t *testing.T) {
	for _, first := range []struct {
		name  string
		err   error
		calls int32
	}{{"commits", nil, 1}, {"fails", errors.New("broken"), 2}} {
		t.Run(first.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d database) {
				db := d.open(t)
				in := newInbox(t, db, nil)
				var calls atomic.Int32
				began, goOn := make(chan struct{}), make(chan struct{})
				h := in.Handler("stock", func(ctx context.Context, tx *sql.Tx, e event.Event) error {
					if calls.Add(1) > 1 {
						select {
						case <-goOn:
						default:
							t.Error("the second handler ran beside the first")
						}
						return effect("stock")(ctx, tx, e)
					}
					close(began)
					<-goOn
					if first.err != nil {
						return first.err
					}
					return effect("stock")(ctx, tx, e)
				})
				e := newEvent(t, "1", "a")
				var wait sync.WaitGroup
				wait.Go(func() {
					if err := h(t.Context(), e); !errors.Is(err, first.err) {
						t.Errorf("the first: %v", err)
					}
				})
				<-began
				second := make(chan struct{})
				wait.Go(func() {
					close(second)
					if err := h(t.Context(), e); err != nil {
						t.Errorf("the second: %v", err)
					}
				})
				<-second
				waitsForLock(t, d, db, "inbox")
				close(goOn)
				wait.Wait()
				if n := count(t, db, `SELECT count(*) FROM effects`); n != 1 || calls.Load() != first.calls {
					t.Errorf("%d effects of %d calls, want 1 of %d", n, calls.Load(), first.calls)
				}
			})
		})
	}
}

// waitsForLock waits until a transaction in PostgreSQL waits for another one with
// its INSERT into a table. SQLite cannot be asked, and has one writer at a time.
func waitsForLock(t testing.TB, d database, db *sql.DB, table string) {
	t.Helper()
	if !d.postgres() {
		return
	}
	for began := time.Now(); count(t, db, `SELECT count(*) FROM pg_stat_activity
		WHERE application_name = current_setting('application_name') AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO "' || $1 || '"%'`, table) == 0; {
		if time.Since(began) > patience {
			t.Fatal("nobody waits")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestSerializationFailure has two handlers lose against each other: that is
// tried again at once, and no failure.
func TestSerializationFailure(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		opts := &inbox.Options{}
		if d.postgres() {
			opts.Tx = &sql.TxOptions{Isolation: sql.LevelSerializable}
		}
		in := newInbox(t, db, opts)
		if _, err := db.Exec(`CREATE TABLE balance (total INTEGER)`); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(`INSERT INTO balance VALUES (0)`); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int32
		both := make(chan struct{})
		h := in.Handler("stock", func(ctx context.Context, tx *sql.Tx, e event.Event) error {
			n := calls.Add(1)
			var total int
			if err := tx.QueryRowContext(ctx, `SELECT total FROM balance`).Scan(&total); err != nil {
				return err
			}
			if d.postgres() { // both have read before either writes
				if n == 2 {
					close(both)
				}
				<-both
			}
			_, err := tx.ExecContext(ctx, `UPDATE balance SET total = $1`, total+1)
			return err
		})
		var wait sync.WaitGroup
		for _, id := range []string{"1", "2"} {
			e := newEvent(t, id, "")
			wait.Go(func() {
				if err := h(t.Context(), e); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if n := count(t, db, `SELECT total FROM balance`); n != 2 {
			t.Errorf("balance %d, want 2", n)
		}
		if n := calls.Load(); d.postgres() && n < 3 {
			t.Errorf("%d calls: nothing failed", n)
		}
	})
}

// TestTimeout has handlers take longer than they may: the error says so, whatever
// they make of it.
func TestTimeout(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		in := newInbox(t, db, &inbox.Options{Timeout: 50 * time.Millisecond})
		for name, returns := range map[string]func(context.Context, *sql.Tx) error{
			"nil":                 func(context.Context, *sql.Tx) error { return nil },
			"the context's error": func(ctx context.Context, _ *sql.Tx) error { return ctx.Err() },
			"the context's cause": func(ctx context.Context, _ *sql.Tx) error { return context.Cause(ctx) },
			"a statement's error": func(ctx context.Context, tx *sql.Tx) error { return effect("")(ctx, tx, newEvent(t, "", "")) },
			"one without a context": func(_ context.Context, tx *sql.Tx) error {
				return effect("")(context.Background(), tx, newEvent(t, "", ""))
			},
		} {
			err := in.Handler("stock", func(ctx context.Context, tx *sql.Tx, _ event.Event) error {
				<-ctx.Done()
				for { // until the transaction is rolled back
					if _, err := tx.Exec(`SELECT 1`); errors.Is(err, sql.ErrTxDone) {
						break
					}
				}
				return returns(ctx, tx)
			})(t.Context(), newEvent(t, "1", ""))
			if err == nil || !strings.Contains(err.Error(), "Options.Timeout") {
				t.Errorf("a handler that returns %s: %v; want the timeout named", name, err)
			}
		}
		if n := count(t, db, `SELECT (SELECT count(*) FROM inbox) + (SELECT count(*) FROM effects)`); n != 0 {
			t.Errorf("%d notes and effects are left", n)
		}
	})
}

func TestPurge(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		in := newInbox(t, db, &inbox.Options{Retention: time.Hour})
		h := in.Handler("stock", effect("stock"))
		for _, id := range []string{"old", "new"} {
			if err := h(t.Context(), newEvent(t, id, "")); err != nil {
				t.Fatal(err)
			}
		}
		old := `UPDATE inbox SET handled_at = handled_at - 3600001 WHERE id = 'old'`
		many := `INSERT INTO inbox SELECT 'many', 'many', value, 0 FROM generate_series(1, 2500)`
		if d.postgres() {
			old = `UPDATE inbox SET handled_at = handled_at - interval '1 hour 1 millisecond' WHERE id = 'old'`
			many = `INSERT INTO inbox SELECT 'many', 'many', n::text, '2020-01-01' FROM generate_series(1, 2500) AS n`
		} else {
			many = `WITH RECURSIVE numbers(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM numbers WHERE value < 2500)
				INSERT INTO inbox SELECT 'many', 'many', value, 0 FROM numbers`
		}
		for _, q := range []string{old, many} {
			if _, err := db.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := in.Purge(t.Context()); n != 2501 || err != nil {
			t.Errorf("purged %d, %v; want 2501", n, err)
		}
		if n := count(t, db, `SELECT count(*) FROM inbox WHERE id = 'new'`); n != 1 {
			t.Error("what is younger than the retention was purged")
		}
	})
}

// TestPurgeIsolated has several purge at once where transactions see what was
// there when they began.
func TestPurgeIsolated(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			db := postgres(t).isolated(level).open(t)
			in := newInbox(t, db, nil)
			if _, err := db.Exec(`INSERT INTO inbox SELECT 'many', 'many', n::text, '2020-01-01' FROM generate_series(1, 20000) AS n`); err != nil {
				t.Fatal(err)
			}
			var purged atomic.Int64
			var wait sync.WaitGroup
			for range 4 {
				wait.Go(func() {
					n, err := in.Purge(t.Context())
					if err != nil {
						t.Error(err)
					}
					purged.Add(int64(n))
				})
			}
			wait.Wait()
			if n := purged.Load(); n != 20000 {
				t.Errorf("purged %d, want 20000", n)
			}
		})
	}
}
