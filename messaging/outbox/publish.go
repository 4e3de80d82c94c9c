package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/internal/database"
	"github.com/catchment-events/catchment/reactor"
)

// An Execer is a transaction: a [*sql.Tx], or a wrapper of one. A [*sql.Conn] or
// a [*sql.DB] is one, too, for an event that goes with no change of state.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// In returns a publisher that stores events in the outbox within tx: they are
// published after the commit, and never without one. Publish checks events as a
// broker's does [EVT-1, EVT-2], and keeps nothing of them [EVT-4]. A source and
// id that waits in the outbox is not stored again. On an error, roll back: in
// PostgreSQL the transaction is of no more use. If tx is no [*sql.Tx], events may be
// stored all the same, and the error wraps ErrUnknown [PUB-6].
func (o *Outbox) In(tx Execer) messaging.Publisher { return publisher{o, tx} }

type publisher struct {
	outbox *Outbox
	tx     Execer
}

// maxRows is how many rows one INSERT has, at most: arguments are limited.
const maxRows = 500

func (p publisher) Publish(ctx context.Context, events ...event.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := messaging.CheckEvents(p.outbox.opts.MaxEventSize, events...); err != nil {
		return err
	}
	if len(events) == 0 {
		return nil
	}
	for rest := events; len(rest) > 0; {
		n := min(len(rest), maxRows)
		if err := p.insert(ctx, rest[:n]); err != nil {
			// In a transaction that has failed none is stored. Without one, or in
			// what may be none, what went before is, and this may be.
			if _, ok := p.tx.(*sql.Tx); !ok {
				err = fmt.Errorf("%w: %w", messaging.ErrUnknown, err)
			}
			err = fmt.Errorf("outbox: store in %v: %w", p.outbox.table, err)
			if len(events) == 1 {
				return err
			}
			all := make([]error, len(events))
			for i := range all {
				all[i] = err
			}
			return &reactor.BatchError{Errors: all}
		}
		rest = rest[n:]
	}
	p.outbox.wake(false) // soon: there is no telling when tx is committed
	return nil
}

func (p publisher) insert(ctx context.Context, events []event.Event) error {
	args := make([]any, 0, 4*len(events))
	for _, e := range events {
		text, err := event.Marshal(e)
		if err != nil {
			return err
		}
		source, id := database.Identity(e.Source(), e.ID())
		args = append(args, source, id, database.Key(messaging.PartitionKey(e)), string(text))
	}
	_, err := p.tx.ExecContext(ctx, p.outbox.insertQuery(len(events)), args...)
	return err
}

// insertQuery returns the INSERT for a number of rows, which says NOTIFY now and
// then.
func (o *Outbox) insertQuery(rows int) string {
	var b strings.Builder
	b.WriteString(o.sql.insert)
	mark := byte('$')
	if o.opts.Dialect == SQLite {
		mark = '?'
	}
	for i := range rows {
		sep := ",("
		if i == 0 {
			sep = "("
		}
		b.WriteString(sep)
		for column := range 4 {
			if column > 0 {
				b.WriteByte(',')
			}
			b.WriteByte(mark)
			b.WriteString(strconv.Itoa(4*i + column + 1))
		}
		b.WriteByte(')')
	}
	b.WriteString(o.sql.conflict)
	if o.sql.notify != "" && o.mayNotify(time.Now()) {
		b.WriteString(o.sql.notify)
	}
	return b.String()
}

// mayNotify reports whether it is time for a NOTIFY. What is left out is found:
// a relay that was woken looks again after a few milliseconds, and then less and
// less often, until it looks every Options.Poll.
func (o *Outbox) mayNotify(now time.Time) bool {
	if o.opts.NotifyEvery < 0 {
		return false
	}
	last := o.notified.Load()
	return now.UnixNano()-last >= int64(o.opts.NotifyEvery) && o.notified.CompareAndSwap(last, now.UnixNano())
}
