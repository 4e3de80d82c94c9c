package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/outbox"
	"github.com/catchment-events/catchment/provider/memory"
)

// benchEach runs a benchmark on each database.
func benchEach(b *testing.B, bench func(b *testing.B, d database)) {
	b.Run("PostgreSQL", func(b *testing.B) { bench(b, postgres(b)) })
	b.Run("SQLite", func(b *testing.B) { bench(b, sqlite(b)) })
}

// fill stores n events of a thousand keys.
func fill(b *testing.B, db *sql.DB, ob *outbox.Outbox, n int) {
	b.Helper()
	var events []event.Event
	for i := range n {
		events = append(events, newEvent(b, fmt.Sprint("fill ", i), fmt.Sprint("key ", i%1000)))
		if len(events) == 500 || i == n-1 {
			publish(b, db, ob, events...)
			events = nil
		}
	}
}

// counts is a publisher that says when so many events have come.
type counts struct {
	messaging.Publisher
	left atomic.Int64
	done chan struct{}
}

func (c *counts) Publish(ctx context.Context, events ...event.Event) error {
	err := c.Publisher.Publish(ctx, events...)
	if err == nil && c.left.Add(-int64(len(events))) == 0 {
		close(c.done)
	}
	return err
}

// BenchmarkRelay is a backlog of b.N events that a relay takes to the memory
// broker, until the last one is deleted.
func BenchmarkRelay(b *testing.B) {
	benchEach(b, func(b *testing.B, d database) {
		db := d.open(b)
		ob := newOutbox(b, db, nil)
		fill(b, db, ob, b.N)
		broker := memory.New(&memory.Options{MaxEvents: max(b.N, 1)})
		defer broker.Close()
		c := &counts{Publisher: broker, done: make(chan struct{})}
		c.left.Store(int64(b.N))
		b.ReportAllocs()
		b.ResetTimer()
		stop := relay(b, ob, c, nil)
		<-c.done
		if err := stop(); err != nil { // with what was acked last
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		if s, err := ob.Stats(b.Context()); err != nil || s.Pending != 0 {
			b.Errorf("stats %+v, %v; want none pending", s, err)
		}
	})
}

// BenchmarkWriters is b.N transactions of eight writers that change a row and
// insert another: in turns, a plain insert into a table like the outbox and one
// event in the outbox. It reports what the outbox costs: alone, and with a relay
// that empties it meanwhile in the same process.
func BenchmarkWriters(b *testing.B) {
	benchEach(b, func(b *testing.B, d database) {
		for _, relays := range []int{0, 1} {
			b.Run(fmt.Sprintf("relays=%d", relays), func(b *testing.B) { benchWriters(b, d, relays) })
		}
	})
}

// benches counts benchmarks, which have tables of their own.
var benches atomic.Int64

func benchWriters(b *testing.B, d database, relays int) {
	const writers, turns = 8, 40
	db := d.open(b)
	db.SetMaxIdleConns(2 * writers)
	run := fmt.Sprint(benches.Add(1))
	ob := newOutbox(b, db, &outbox.Options{Table: "outbox" + run})
	// An equal table is that of another outbox, which nobody relays.
	newOutbox(b, db, &outbox.Options{Table: "equal" + run})
	table, accounts := "equal"+run, "accounts"+run
	if _, err := db.Exec(`CREATE TABLE ` + accounts + ` (id integer PRIMARY KEY, balance bigint)`); err != nil {
		b.Fatal(err)
	}
	for i := range writers {
		if _, err := db.Exec(`INSERT INTO `+accounts+` VALUES ($1, 0)`, i); err != nil {
			b.Fatal(err)
		}
	}
	broker := memory.New(&memory.Options{MaxEvents: 2*b.N + 100, DiscardOldest: true})
	defer broker.Close()
	if relays > 0 {
		relay(b, ob, broker, nil)
	}
	sample := newEvent(b, "sample", "key")
	text, err := event.Marshal(sample)
	if err != nil {
		b.Fatal(err)
	}
	insert := `INSERT INTO ` + table + ` (source, id, partitionkey, event) VALUES ($1, $2, $3, $4)`

	var number atomic.Int64
	turn := func(n int, write func(ctx context.Context, tx *sql.Tx, e event.Event) error) time.Duration {
		var left atomic.Int64
		left.Store(int64(n))
		began := time.Now()
		var wait sync.WaitGroup
		for w := range writers {
			wait.Go(func() {
				for left.Add(-1) >= 0 {
					err := func() error {
						tx, err := db.BeginTx(b.Context(), nil)
						if err != nil {
							return err
						}
						defer func() { _ = tx.Rollback() }()
						if _, err := tx.ExecContext(b.Context(), `UPDATE `+accounts+` SET balance = balance + 1 WHERE id = $1`, w); err != nil {
							return err
						}
						e := event.Clone(sample)
						e.SetID(fmt.Sprint(number.Add(1)))
						e.SetExtension("partitionkey", fmt.Sprint("account ", w))
						if err := write(b.Context(), tx, e); err != nil {
							return err
						}
						return tx.Commit()
					}()
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wait.Wait()
		return time.Since(began)
	}
	plain := func(ctx context.Context, tx *sql.Tx, e event.Event) error {
		_, err := tx.ExecContext(ctx, insert, e.Source(), e.ID(), messaging.PartitionKey(e), string(text))
		return err
	}
	stored := func(ctx context.Context, tx *sql.Tx, e event.Event) error { return ob.In(tx).Publish(ctx, e) }
	turn(100, plain)
	turn(100, stored)
	b.ResetTimer()
	var without, with time.Duration
	var ratios []float64
	n := max(b.N/turns, 1)
	for i := range turns {
		var a, z time.Duration
		if i%2 == 0 {
			a = turn(n, plain)
			z = turn(n, stored)
		} else { // neither always goes first
			z = turn(n, stored)
			a = turn(n, plain)
		}
		without, with = without+a, with+z
		ratios = append(ratios, a.Seconds()/z.Seconds())
	}
	b.StopTimer()
	slices.Sort(ratios)
	done := float64(n * turns)
	b.ReportMetric(done/without.Seconds(), "plain-tx/s")
	b.ReportMetric(done/with.Seconds(), "outbox-tx/s")
	b.ReportMetric(100*(1-ratios[turns/2]), "%slower") // the median: others use the machine, too
	b.ReportMetric(0, "ns/op")
	if relays > 0 {
		empty(b, ob)
	}
}
