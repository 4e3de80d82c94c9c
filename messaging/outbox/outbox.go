// Package outbox publishes events in the transaction that changes the state they
// tell of: both are committed, or neither is.
//
// A service writes events into a table, in its own transaction:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	_, err = tx.ExecContext(ctx, `INSERT INTO orders …`)
//	...
//	err = ob.In(tx).Publish(ctx, placed)
//	...
//	err = tx.Commit()
//
// and a relay takes them from there to the broker:
//
//	err := ob.Relay(broker, nil).Run(ctx)
//
// # Delivery
//
// An event whose transaction was committed is published at least once, and one
// whose transaction was not never is. The relay publishes an event again when it
// was killed, or lost its database, before the row was deleted; brokers store a
// source and id once within their deduplication window [PUB-3], and package inbox
// drops what comes later. Nothing of this leans on a cursor, which would pass
// over rows of transactions that commit late: rows are claimed and deleted.
//
// Events of one partition key, which is [messaging.PartitionKey], are published
// in the order in which they were written, through failures, too. An event that
// fails holds up its own key and nothing else, until 32768 keys are held up. It
// takes that transactions that write events of one key run one after another, as
// they do when each first locks or updates what the events are about: order is
// the order of the inserts. How long each takes to commit does not matter for it;
// but while a transaction that has written something, anywhere on a PostgreSQL
// server, stays open, a relay reads over all that was published since, each time.
//
// Any number of relays may run, in any number of processes. One at a time works:
// it holds a lease in the database, with a term that the database counts, and
// what it writes is void once another has a later term. Only the clock of the
// database counts.
//
// # Parked events
//
// An event that the broker refuses for good, with ErrInvalid or ErrTooLarge, or
// whose attempts are used up, is parked: it stays in the table with its reason,
// is published no more, and the later events of its key go on without it, unless
// Options.HoldParked says otherwise. See [Outbox.Parked], [Outbox.Retry] and
// [Outbox.Discard].
//
// # Databases
//
// The package uses database/sql alone; the program imports the driver. It is
// tested on PostgreSQL 15 with github.com/jackc/pgx/v5/stdlib, and takes 13 or
// later; and on SQLite with modernc.org/sqlite, opened with:
//
//	file:shop.db?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)
//
// _txlock=immediate matters: a transaction that reads first and writes then fails
// at once when another wrote in between, whatever the timeout. With
// synchronous(NORMAL) a loss of power may take the last commits back, state and
// events alike.
package outbox

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/internal/database"
)

// A Dialect is a kind of database: Postgres or SQLite.
type Dialect = database.Dialect

// The kinds of databases.
const (
	Postgres = database.Postgres
	SQLite   = database.SQLite
)

// Options are the settings of an outbox. The zero value and nil stand for the
// defaults.
type Options struct {
	// Dialect is what db speaks. Default: what its driver is for.
	Dialect Dialect

	// Table is the name of the table, in PostgreSQL perhaps with a schema:
	// "app.outbox". Other tables have names that begin with it. Outboxes with
	// different tables have nothing to do with each other. Default "outbox".
	Table string

	// MaxEventSize is how large an event may be, as for a broker [EVT-2]: at
	// most what the broker behind the relay takes. Default
	// messaging.MaxEventSize.
	MaxEventSize int

	// MaxAttempts is the failed attempt that parks an event; the relay being
	// killed while it had the event is one. Default 0: failures do not park,
	// as an outage of the broker is none of the event's doing.
	MaxAttempts int

	// HoldParked keeps the later events of a parked event's key waiting until
	// it is retried or discarded. Default: they are published without it.
	HoldParked bool

	// Window is how many events a relay holds in memory, at most, and a relay
	// that dies leaves behind with an attempt more. Default 1000. There are
	// fewer if they have more than 16 MiB together.
	Window int

	// Lease is how soon after the working relay died another takes over.
	// Default 10 s.
	Lease time.Duration

	// Poll is how often a relay looks for events that nothing told it of.
	// Default 500 ms.
	Poll time.Duration

	// NotifyEvery is how often this outbox says NOTIFY on PostgreSQL, at most;
	// see [Outbox.Wake]. More often costs writers dearly: commits that notify
	// wait for each other. Default 10 ms; negative: never.
	NotifyEvery time.Duration

	// Timeout bounds each call of the database that a relay makes. Default
	// 5 s, and at most half of Lease.
	Timeout time.Duration

	// Report is told of a relay's trouble with the database, which it rides
	// out. Default: it is logged.
	Report messaging.Report
}

// maxFetched is how many bytes of events a relay holds, about.
const maxFetched = 16 << 20

// An Outbox is a table of events that wait to be published. It is safe for
// concurrent use, and has nothing that needs to be closed.
type Outbox struct {
	db         *sql.DB
	opts       Options
	table      database.Table
	sql        statements
	migrations []database.Migration
	holder     string

	notified atomic.Int64 // when NOTIFY was last said, in nanoseconds

	mu sync.Mutex
	// Below: under mu.
	sources []*source
}

// New returns the outbox in a table of db, which it does not look at: see
// [Outbox.Migrate]. It keeps nothing of opts. The caller closes db, after the
// relays have ended.
func New(db *sql.DB, opts *Options) (*Outbox, error) {
	o := &Outbox{db: db}
	if opts != nil {
		o.opts = *opts
	}
	if err := o.withDefaults(); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	o.sql = statementsFor(o.opts.Dialect, o.table, o.opts.HoldParked)
	o.migrations = database.Migrations(o.table, migrations(o.opts.Dialect)...)
	host, _ := os.Hostname() // for operators to read; may be missing
	o.holder = fmt.Sprintf("%s %d", host, os.Getpid())
	return o, nil
}

func (o *Outbox) withDefaults() (err error) {
	c := &o.opts
	if c.Dialect, o.table, err = database.Resolve(o.db, c.Dialect, c.Table, "outbox"); err != nil {
		return err
	}
	if c.MaxEventSize == 0 {
		c.MaxEventSize = messaging.MaxEventSize
	}
	if c.Window == 0 {
		c.Window = 1000
	}
	if c.NotifyEvery == 0 {
		c.NotifyEvery = 10 * time.Millisecond
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"Lease", &c.Lease, 10 * time.Second},
		{"Poll", &c.Poll, 500 * time.Millisecond},
		{"Timeout", &c.Timeout, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
		if *d.value < time.Millisecond {
			return fmt.Errorf("options: %s %v: must be a millisecond at least", d.name, *d.value)
		}
	}
	c.Timeout = min(c.Timeout, c.Lease/2)
	switch {
	case c.MaxEventSize < 0:
		return fmt.Errorf("options: MaxEventSize %d is negative", c.MaxEventSize)
	case c.MaxAttempts < 0:
		return fmt.Errorf("options: MaxAttempts %d is negative", c.MaxAttempts)
	case c.Window < 0:
		return fmt.Errorf("options: Window %d is negative", c.Window)
	}
	return nil
}

// Wake makes the relays of this outbox in this process look for events now. They
// do soon after a Publish in the same process anyway; what Wake is for is other
// processes, where it saves up to Options.Poll. On PostgreSQL a transaction with
// events says NOTIFY on [Outbox.Channel], within Options.NotifyEvery. Listening
// takes a connection of its own and the driver's help, with pgx:
//
//	func listen(ctx context.Context, conn *pgx.Conn, ob *outbox.Outbox) error {
//		if _, err := conn.Exec(ctx, "LISTEN "+ob.Channel()); err != nil {
//			return err
//		}
//		for {
//			ob.Wake() // what was committed before, too
//			if _, err := conn.WaitForNotification(ctx); err != nil {
//				return err
//			}
//		}
//	}
//
// Nothing depends on it: a notification that is lost is a delay.
func (o *Outbox) Wake() { o.wake(true) }

// Channel returns the channel on which NOTIFY is said. It needs no quotes, unless the
// table is called by a word that SQL reserves.
func (o *Outbox) Channel() string { return channel(o.table) }

// wake makes the sources look: now, or soon.
func (o *Outbox) wake(now bool) {
	for _, s := range o.all() {
		s.wake(now)
	}
}

// all returns the sources that are open.
func (o *Outbox) all() []*source {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sources // which register and remove replace
}

func (o *Outbox) register(s *source) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sources = append(slices.Clip(o.sources), s)
}

func (o *Outbox) remove(s *source) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sources = slices.DeleteFunc(slices.Clone(o.sources), func(other *source) bool { return other == s })
}
