// Package inbox runs handlers that change a database once for each event, however
// often the event is delivered: what was handled is noted in the transaction that
// changes the state.
//
//	in, err := inbox.New(db, nil)
//	...
//	err = messaging.React(ctx, broker, sub, in.Handler("stock", func(ctx context.Context, tx *sql.Tx, e event.Event) error {
//		_, err := tx.ExecContext(ctx, `UPDATE stock …`)
//		return err
//	}), nil)
//
// The note is the first thing that is written in the transaction. Two deliveries
// of an event that come at the same time wait for each other there; the second
// does nothing if the first is committed, and handles if it is rolled back. What
// a handler does outside of tx is not undone with it, and may happen again.
//
// The events that a handler publishes go into its transaction, too, with
// [github.com/catchment-events/catchment/messaging/outbox.Outbox.In].
//
// The package uses database/sql alone; the program imports the driver. It is
// tested on PostgreSQL 15 with github.com/jackc/pgx/v5/stdlib, and on SQLite with
// modernc.org/sqlite, which is to be opened with _txlock=immediate, as package
// outbox says.
package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/catchment-events/catchment/event"
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

// Options are the settings of an inbox. The zero value and nil stand for the
// defaults.
type Options struct {
	// Dialect is what db speaks. Default: what its driver is for.
	Dialect Dialect

	// Table is the name of the table, in PostgreSQL perhaps with a schema:
	// "app.inbox". Other tables have names that begin with it. Default "inbox".
	Table string

	// Retention is how long [Inbox.Purge] leaves what was noted. It must be
	// longer than an event may come again after it was handled: than AckWait
	// and the longest retry, than an operator may take to seek a subscription
	// back, and to retry what is parked in an outbox. Default 30 days.
	Retention time.Duration

	// Tx is how transactions begin. Default: as the database has it.
	Tx *sql.TxOptions

	// Timeout bounds each try of a transaction, the handler included. Default
	// 1 min.
	Timeout time.Duration

	// Tries is how often a transaction that lost against another one, by a
	// serialization failure, a deadlock or SQLITE_BUSY, is tried in one call of
	// the handler; then the error is returned, and retried as any other.
	// Default 5.
	Tries int
}

// An Inbox is a table of events that were handled. It is safe for concurrent use,
// and has nothing that needs to be closed.
type Inbox struct {
	db         *sql.DB
	opts       Options
	table      database.Table
	insert     string
	purge      string
	migrations []database.Migration
}

// New returns the inbox in a table of db, which it does not look at: see
// [Inbox.Migrate]. It keeps nothing of opts but Tx.
func New(db *sql.DB, opts *Options) (*Inbox, error) {
	in := &Inbox{db: db}
	if opts != nil {
		in.opts = *opts
	}
	if err := in.withDefaults(); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	in.statements()
	return in, nil
}

func (in *Inbox) withDefaults() (err error) {
	c := &in.opts
	if c.Dialect, in.table, err = database.Resolve(in.db, c.Dialect, c.Table, "inbox"); err != nil {
		return err
	}
	if c.Retention == 0 {
		c.Retention = 30 * 24 * time.Hour
	}
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	if c.Tries == 0 {
		c.Tries = 5
	}
	switch {
	case c.Retention < 0:
		return fmt.Errorf("options: Retention %v is negative", c.Retention)
	case c.Timeout < 0:
		return fmt.Errorf("options: Timeout %v is negative", c.Timeout)
	case c.Tries < 0:
		return fmt.Errorf("options: Tries %d is negative", c.Tries)
	}
	return nil
}

// A Handler handles an event within a transaction, which is not its to commit or
// roll back. nil commits; an error rolls back and is what the [messaging.Handler]
// returns, so [reactor.Reject] and [reactor.RetryAfter] work. It may be called
// again at once, with another transaction: see Options.Tries. The context ends
// with that of the delivery, and after Options.Timeout.
type Handler func(ctx context.Context, tx *sql.Tx, e event.Event) error

// Handler returns a handler for a subscription of that name, whose notes are its
// own: another subscription handles the same event once, too. An event that was
// handled is acked, and h is not called. It panics if h is nil.
//
// A retry after an error, and a dead letter that is handled again, are no
// repetitions: nothing was noted. An event that was published anew under another
// id is another event.
func (in *Inbox) Handler(subscription string, h Handler) messaging.Handler {
	if h == nil {
		panic("inbox: Handler: the handler is nil")
	}
	return func(ctx context.Context, e event.Event) error {
		for try := 1; ; try++ {
			err := in.once(ctx, subscription, h, e)
			if err == nil || try >= in.opts.Tries || !database.Transient(err) {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pause(try)): // outside of any transaction
			}
		}
	}
}

// pause is drawn, so that two that lost against each other do not do it again.
func pause(try int) time.Duration {
	limit := time.Millisecond << min(try, 6)
	return limit/2 + rand.N(limit)
}

// once is one try.
func (in *Inbox) once(ctx context.Context, subscription string, h Handler, e event.Event) error {
	ctx, cancel := context.WithTimeoutCause(ctx, in.opts.Timeout, errTimeout)
	defer cancel()
	tx, err := in.db.BeginTx(ctx, in.opts.Tx)
	if err != nil {
		return fmt.Errorf("inbox: begin: %w", in.cause(ctx, err))
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	source, id := database.Identity(e.Source(), e.ID())
	result, err := tx.ExecContext(ctx, in.insert, subscription, source, id)
	if err != nil {
		return fmt.Errorf("inbox: note the event in %v: %w", in.table, in.cause(ctx, err))
	}
	switch n, err := result.RowsAffected(); {
	case err != nil:
		return fmt.Errorf("inbox: note the event in %v: %w", in.table, err)
	case n == 0:
		return nil // it was handled
	}
	if err := h(ctx, tx, e); err != nil {
		return in.cause(ctx, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("inbox: commit: %w", in.cause(ctx, err))
	}
	return nil
}

var errTimeout = errors.New("inbox: the transaction took longer than Options.Timeout")

// cause names the timeout if it is what ended ctx, and with it the transaction,
// which may be all that err says.
func (in *Inbox) cause(ctx context.Context, err error) error {
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone)
	if ended && context.Cause(ctx) == errTimeout {
		return fmt.Errorf("%w (%v): %w", errTimeout, in.opts.Timeout, err)
	}
	return err
}

// purgeStep is how many rows one transaction of Purge deletes, at most.
const purgeStep = 1000

// Purge deletes what was noted longer ago than Options.Retention, by the clock of
// the database, in steps that do not hold up handlers for long, and returns how
// much that was. It is for the program to call, daily say; several may at once.
func (in *Inbox) Purge(ctx context.Context) (int, error) {
	all := 0
	for {
		n, err := in.purgeSome(ctx)
		all += n
		if err != nil {
			return all, fmt.Errorf("inbox: purge %v: %w", in.table, err)
		}
		if n < purgeStep {
			return all, nil
		}
	}
}

func (in *Inbox) purgeSome(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, in.opts.Timeout)
	defer cancel()
	return in.opts.Dialect.Exec(ctx, in.db, in.purge, in.opts.Retention.Milliseconds(), purgeStep)
}
