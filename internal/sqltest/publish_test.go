package sqltest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/inbox"
	"github.com/catchment-events/catchment/messaging/outbox"
	"github.com/catchment-events/catchment/reactor"
)

// TestFidelity has events come out as they went in [EVT-3].
func TestFidelity(t *testing.T) {
	full := newEvent(t, `id "with" \ % {braces} and, commas`, "")
	full.SetSubject("Straße 日本")
	full.SetDataSchema("https://example.com/schema?a=%20b")
	full.SetTime(time.Date(2026, 2, 3, 4, 5, 6, 789012345, time.UTC))
	full.SetExtension("text", " spaces ")
	full.SetExtension("empty", "")
	full.SetExtension("number", 42)
	full.SetExtension("flag", true)
	full.SetExtension("bytes", []byte{0, 1, 255})

	binary := newEvent(t, "binary", "")
	if err := binary.SetData("application/octet-stream", []byte{0, 255, '\r', '\n', 0x80}); err != nil {
		t.Fatal(err)
	}
	text := newEvent(t, "text", "")
	if err := text.SetData("text/plain", []byte("a\x00b\u2028c")); err != nil {
		t.Fatal(err)
	}
	big := newEvent(t, "big", "")
	if err := big.SetData("text/plain", []byte(strings.Repeat("x", 900_000))); err != nil {
		t.Fatal(err)
	}
	numbers := newEvent(t, "numbers", "")
	if err := numbers.SetData("application/json", []byte(`{ "n": 12345678901234567890.12345678901234567890, "s": "\u0000" }`)); err != nil {
		t.Fatal(err)
	}
	long := newEvent(t, noise(5000), noise(5000))
	bare, err := event.New("/test", "bare", nil)
	if err != nil {
		t.Fatal(err)
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		all := []event.Event{full, binary, text, big, numbers, long, bare}
		publish(t, db, ob, all...)
		src := open(t, ob)
		for _, want := range all {
			got := receive(t, src, want.ID())
			if !event.Equal(got.Value, want) {
				t.Errorf("got %v\nwant %v", got.Value, want)
			}
			got.Value.SetType("changed") // it is the receiver's [EVT-5]
			if err := got.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := receive(t, src, want.ID())
			if !event.Equal(again.Value, want) {
				t.Errorf("after a release: got %v\nwant %v", again.Value, want)
			}
			if err := again.Reject(t.Context(), "it is only a test"); err != nil {
				t.Fatal(err)
			}
		}
		// What is parked has a place in an index.
		stats(t, ob, func(s outbox.Stats) bool { return s.Parked == len(all) })
	})
}

// noise returns text that no index can compress.
func noise(n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(byte('a' + rand.N(26)))
	}
	return b.String()
}

// TestBytesAreBounded has events that are too many megabytes to be held at once.
func TestBytesAreBounded(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		for i := range 40 {
			e := newEvent(t, fmt.Sprint(i), fmt.Sprint(i))
			if err := e.SetData("text/plain", []byte(strings.Repeat("x", 1_000_000))); err != nil {
				t.Fatal(err)
			}
			publish(t, db, ob, e)
		}
		src := open(t, ob)
		first := receive(t, src, "0")
		var claimed string
		if err := db.QueryRow(`SELECT claimed FROM outbox_lease`).Scan(&claimed); err != nil {
			t.Fatal(err)
		}
		if claimed != "1-13" { // in base64
			t.Errorf("claimed %s, want what makes 16 MiB full: 1-13", claimed)
		}
		if err := first.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < 40; i++ {
			if err := receive(t, src, fmt.Sprint(i)).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		empty(t, ob)
	})
}

func TestPublishChecks(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, &outbox.Options{MaxEventSize: 20_000})
		large := newEvent(t, "large", "")
		if err := large.SetData("text/plain", []byte(strings.Repeat("x", 20_000))); err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			name   string
			ctx    context.Context
			events []event.Event
			want   error
		}{
			{"invalid", t.Context(), []event.Event{newEvent(t, "good", ""), {}}, messaging.ErrInvalid},
			{"too large", t.Context(), []event.Event{newEvent(t, "good", ""), large}, messaging.ErrTooLarge},
			{"context done", ended, []event.Event{newEvent(t, "good", "")}, context.Canceled},
			{"nothing", t.Context(), nil, nil},
		} {
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if err := ob.In(tx).Publish(tt.ctx, tt.events...); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
			if err := tx.Commit(); err != nil {
				t.Errorf("%s: the transaction is of no more use: %v", tt.name, err)
			}
		}
		if s, err := ob.Stats(t.Context()); err != nil || s.Pending > 0 {
			t.Errorf("stats %+v, %v: something was stored [PUB-5, PUB-6]", s, err)
		}
	})
}

// TestPublishAgain has a source and id stored once while it waits.
func TestPublishAgain(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		one, other := newEvent(t, "1", ""), newEvent(t, "1", "")
		other.SetSource("/other")
		publish(t, db, ob, one, one, other)
		publish(t, db, ob, one)
		if s, err := ob.Stats(t.Context()); err != nil || s.Pending != 2 {
			t.Errorf("stats %+v, %v; want 2 pending", s, err)
		}
		// Many, in several statements.
		var many []event.Event
		for i := range 1234 {
			many = append(many, newEvent(t, fmt.Sprint("many ", i), ""))
		}
		publish(t, db, ob, many...)
		if s, err := ob.Stats(t.Context()); err != nil || s.Pending != 1236 {
			t.Errorf("stats %+v, %v; want 1236 pending", s, err)
		}
	})
}

// breaks is a database whose connection breaks with the second statement.
type breaks struct {
	outbox.Execer
	calls int
}

func (b *breaks) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if b.calls++; b.calls > 1 {
		return nil, driver.ErrBadConn
	}
	return b.Execer.ExecContext(ctx, query, args...)
}

// TestPublishFails has a Publish fail part-way: it says of events that they are not
// stored only within a transaction [PUB-6].
func TestPublishFails(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		var many []event.Event
		for i := range 600 { // in two statements
			many = append(many, newEvent(t, fmt.Sprint(i), ""))
		}
		check := func(what string, err error, n int, unknown bool) {
			t.Helper()
			each := []error{err}
			if n > 1 {
				batch, ok := errors.AsType[*reactor.BatchError](err)
				if !ok {
					t.Fatalf("%s: %v, want a BatchError", what, err)
				}
				each = batch.Errors
			}
			if len(each) != n {
				t.Fatalf("%s: %d errors, want %d", what, len(each), n)
			}
			for i, err := range each {
				if err == nil || errors.Is(err, messaging.ErrUnknown) != unknown {
					t.Fatalf("%s: event %d: %v; want ErrUnknown: %t", what, i, err, unknown)
				}
			}
		}
		broken := &breaks{Execer: db}
		check("without a transaction", ob.In(broken).Publish(t.Context(), many...), len(many), true)
		check("one without a transaction", ob.In(broken).Publish(t.Context(), many[0]), 1, true)
		if s, err := ob.Stats(t.Context()); err != nil || s.Pending != 500 {
			t.Errorf("stats %+v, %v; want the first statement stored", s, err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		check("in a transaction", ob.In(tx).Publish(t.Context(), many...), len(many), false)
		check("one in a transaction", ob.In(tx).Publish(t.Context(), many[0]), 1, false)
	})
}

// TestUndecodable has rows that somebody else wrote: they are parked.
func TestUndecodable(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		if _, err := db.Exec(`INSERT INTO outbox (source, id, partitionkey, event) VALUES ('s', 'bad', 'k', 'no JSON')`); err != nil {
			t.Fatal(err)
		}
		good, err := event.Marshal(newEvent(t, "good", ""))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(`INSERT INTO outbox (source, id, partitionkey, event) VALUES ('s', 'good', 'k', $1)`, string(good)); err != nil {
			t.Fatal(err)
		}
		p := &stubborn{}
		relay(t, ob, p, nil)
		stats(t, ob, func(s outbox.Stats) bool { return s.Parked == 1 && s.Pending == 0 })
		parked, err := ob.Parked(t.Context(), 0, 10)
		if err != nil || len(parked) != 1 || string(parked[0].Raw) != "no JSON" || !strings.HasPrefix(parked[0].Reason, "it does not decode: ") {
			t.Errorf("parked %+v, %v", parked, err)
		}
		if diff := cmp.Diff([]string{"good"}, p.published()); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	})
}

// TestMigrate has several processes migrate at once, and a tool of the user's run
// the migrations before.
func TestMigrate(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() {
				ob, err := outbox.New(db, nil)
				if err == nil {
					err = ob.Migrate(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()

		ob, err := outbox.New(db, &outbox.Options{Table: "other"})
		if err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New(db, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ob.Source(t.Context()); err == nil || !strings.Contains(err.Error(), "Migrate") {
			t.Errorf("a source without tables: %v", err)
		}
		for _, m := range append(ob.Migrations(), in.Migrations()...) {
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(m.SQL); err != nil {
				t.Fatalf("migration %d, %s: %v", m.Version, m.Name, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(ob.Migrate(t.Context()), in.Migrate(t.Context())); err != nil {
			t.Error(err)
		}
		// Two outboxes have nothing to do with each other.
		publish(t, db, ob, newEvent(t, "1", ""))
		first := newOutbox(t, db, nil)
		if s, err := first.Stats(t.Context()); err != nil || s.Pending != 0 {
			t.Errorf("stats of the first outbox %+v, %v", s, err)
		}
		if err := receive(t, open(t, ob), "1").Ack(t.Context()); err != nil {
			t.Error(err)
		}
		empty(t, ob)
	})
}

// TestMigrateIsolated has several processes migrate at once where transactions
// see what was there when they began.
func TestMigrateIsolated(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			db := postgres(t).isolated(level).open(t)
			ob, err := outbox.New(db, nil)
			if err != nil {
				t.Fatal(err)
			}
			in, err := inbox.New(db, nil)
			if err != nil {
				t.Fatal(err)
			}
			var wait sync.WaitGroup
			for range 10 {
				wait.Go(func() {
					if err := errors.Join(ob.Migrate(t.Context()), in.Migrate(t.Context())); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
		})
	}
}

func TestSchema(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	var schema string
	if err := db.QueryRow(`SELECT current_schema()`).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	schema += "_other"
	if _, err := db.Exec(`CREATE SCHEMA ` + schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the source was closed
		if _, err := db.Exec(`DROP SCHEMA ` + schema + ` CASCADE`); err != nil {
			t.Error(err)
		}
	})
	ob := newOutbox(t, db, &outbox.Options{Table: schema + "." + strings.Repeat("o", 40)})
	src := open(t, ob)
	publish(t, db, ob, newEvent(t, "1", ""))
	if err := receive(t, src, "1").Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	empty(t, ob)
}

func TestOptions(t *testing.T) {
	db := sqlite(t).open(t)
	for _, tt := range []struct {
		opts outbox.Options
		want string
	}{
		{outbox.Options{Table: `a"; DROP TABLE b`}, "table"},
		{outbox.Options{Table: "Outbox"}, "table"},
		{outbox.Options{Table: "app.outbox"}, "SQLite has no schemas"},
		{outbox.Options{Dialect: 9}, "dialect 9"},
		{outbox.Options{Lease: time.Microsecond}, "Lease"},
		{outbox.Options{MaxAttempts: -1}, "MaxAttempts"},
		{outbox.Options{Window: -1}, "Window"},
	} {
		if _, err := outbox.New(db, &tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want an error that names %s", tt.opts, err, tt.want)
		}
	}
	if _, err := inbox.New(db, &inbox.Options{Retention: -1}); err == nil {
		t.Error("a negative retention is no error")
	}
}

// TestSequencesAreNotReused has the last row go and another come [AUTOINCREMENT].
func TestSequencesAreNotReused(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		src := open(t, ob)
		for i := range 3 {
			publish(t, db, ob, newEvent(t, fmt.Sprint(i), ""))
			e := receive(t, src, fmt.Sprint(i))
			if e.Info.Sequence != uint64(i+1) {
				t.Errorf("sequence %d, want %d", e.Info.Sequence, i+1)
			}
			if err := e.Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
			empty(t, ob)
		}
	})
}

func TestStats(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		if s, err := ob.Stats(t.Context()); err != nil || s != (outbox.Stats{}) {
			t.Errorf("stats of nothing: %+v, %v", s, err)
		}
		publish(t, db, ob, newEvent(t, "1", ""), newEvent(t, "2", ""))
		hour := `UPDATE outbox SET created_at = created_at - 3600000 WHERE id = '1'`
		if d.postgres() {
			hour = `UPDATE outbox SET created_at = created_at - interval '1 hour' WHERE id = '1'`
		}
		if _, err := db.Exec(hour); err != nil {
			t.Fatal(err)
		}
		s, err := ob.Stats(t.Context())
		if err != nil || s.Pending != 2 || s.Oldest < time.Hour || s.Oldest > time.Hour+patience {
			t.Errorf("stats %+v, %v; want 2 pending for an hour", s, err)
		}
	})
}
