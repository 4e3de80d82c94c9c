package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/internal/database"
)

// transact runs f in a transaction, with a deadline and whatever the caller's
// context says, and commits.
func (o *Outbox) transact(f func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.opts.Timeout)
	defer cancel()
	tx, err := o.db.BeginTx(ctx, o.opts.Dialect.TxOptions())
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// acquire takes the lease if it is free, and reports whether.
func (s *source) acquire() (bool, error) {
	o := s.outbox
	free, err := o.ask(o.sql.free)
	if err != nil || !free {
		return false, err
	}
	began := time.Now()
	var term int64
	var claimed []int64
	err = o.transact(func(ctx context.Context, tx *sql.Tx) error {
		var text string
		err := tx.QueryRowContext(ctx, o.sql.acquire, o.holder, o.opts.Lease.Milliseconds()).Scan(&term, &text)
		if err != nil {
			return err
		}
		if claimed, err = parseRanges(text); err != nil || len(claimed) == 0 {
			return err
		}
		// Whoever had these died, or lost them: an attempt has failed. An UPDATE
		// here, and not one for each event that is claimed.
		if _, err := tx.ExecContext(ctx, o.sql.charge, o.opts.Dialect.Integers(claimed), lostReason); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, o.sql.claim, term, "")
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil // another was faster
	}
	if err != nil {
		return false, fmt.Errorf("take the lease: %w", err)
	}
	s.starts(term, began, len(claimed) > 0)
	return true, nil
}

const lostReason = "the relay that had it ended, or lost the database, before it said what became of it"

// ask runs a query that answers yes or no.
func (o *Outbox) ask(query string, args ...any) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.opts.Timeout)
	defer cancel()
	err = o.db.QueryRowContext(ctx, query, args...).Scan(&yes)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("the row of the lease is missing: %w", err)
	}
	return yes, err
}

// look reports whether there is anything to fetch, without a transaction and
// without writing.
func (s *source) look(w *work) (bool, error) {
	o := s.outbox
	began := time.Now()
	some, err := o.ask(o.sql.look, w.from, o.opts.Dialect.Integers(w.held), o.opts.Dialect.Strings(w.blocked))
	if err != nil {
		return false, fmt.Errorf("look for events: %w", err)
	}
	if !some {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		s.found(now, false, false, o.opts.Poll)
		if w.sweep {
			s.sweepAt = now.Add(max(sweepPause, 10*now.Sub(began)))
		}
	}
	return some, nil
}

// A fetched is what was fetched.
type fetched struct {
	entries []*entry
	waiting []waiting // that may not be tried again yet
	unfit   []failure // that will never be tried
	last    int64     // the last row; 0: there was none
	full    bool      // there may be more

	// Of transactions, by number, if there was a row; see position.
	ended  int64 // those before had ended, and what they wrote was to be seen
	number int64 // of the one that fetched
}

type waiting struct {
	key  string
	seq  int64
	wait time.Duration
}

// exchange writes what was settled and fetches, in one transaction, which comes
// to nothing if the term is not the lease's any more. From its first statement
// on nobody else can take the lease.
func (s *source) exchange(w *work) error {
	o := s.outbox
	began := time.Now()
	var f fetched
	err := o.transact(func(ctx context.Context, tx *sql.Tx) error {
		if err := s.write(ctx, tx, w, o.sql.renew, w.term, o.opts.Lease.Milliseconds()); err != nil {
			return err
		}
		if w.limit == 0 && len(w.failed) == 0 {
			return nil // what is claimed and gone does no harm
		}
		var err error
		if w.limit > 0 {
			if f, err = s.fetch(ctx, tx, w); err != nil {
				return fmt.Errorf("fetch: %w", err)
			}
		}
		_, err = tx.ExecContext(ctx, o.sql.claim, w.term, s.claims(f.entries))
		return err
	})
	switch {
	case errors.Is(err, messaging.ErrLost):
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.term == w.term {
			s.forgets()
		}
		return fmt.Errorf("the lease was taken by another, who gets what this relay held: %w", err)
	case err != nil:
		s.undo(w)
		return err
	}
	s.merge(w, began, f)
	return nil
}

// finish writes what was settled, and gives up the lease.
func (s *source) finish(w *work) error {
	return s.outbox.transact(func(ctx context.Context, tx *sql.Tx) error {
		return s.write(ctx, tx, w, s.outbox.sql.release, w.term)
	})
}

// write first says something about the lease, which fails with ErrLost if the
// term is over, and then writes what was settled.
func (s *source) write(ctx context.Context, tx *sql.Tx, w *work, lease string, args ...any) error {
	o := s.outbox
	result, err := tx.ExecContext(ctx, lease, args...)
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return cmp.Or(err, error(messaging.ErrLost))
	}
	if len(w.acked) > 0 {
		if _, err := tx.ExecContext(ctx, o.sql.ack, o.opts.Dialect.Integers(w.acked)); err != nil {
			return fmt.Errorf("delete what was acked: %w", err)
		}
	}
	if len(w.failed) > 0 {
		failed, list := failures(w.failed)
		if _, err := tx.ExecContext(ctx, o.sql.fail, failed, o.opts.Dialect.Integers(list)); err != nil {
			return fmt.Errorf("note failures: %w", err)
		}
	}
	return nil
}

// failures returns failures as the statement takes them.
func failures(list []failure) (text string, seqs []int64) {
	type row struct {
		Seq      int64  `json:"seq"`
		Attempts int    `json:"attempts"`
		Error    string `json:"error"`
		After    int64  `json:"after"`
		Park     bool   `json:"park"`
	}
	rows := make([]row, len(list))
	now := time.Now()
	for i, f := range list {
		after := max(f.due.Sub(now), 0).Milliseconds()
		rows[i] = row{f.seq, f.attempt, database.Reason(f.reason, messaging.MaxReason), after, f.park}
		seqs = append(seqs, f.seq)
	}
	b, _ := json.Marshal(rows) // numbers and valid text always marshal
	return string(b), seqs
}

// fetch reads the next rows. With HoldParked it begins at the first row if the
// parked events are others than they were: what was held for one that is tried
// again is to be seen now, and the one itself may stand before w.from. The look
// at them comes after the rows were read, so that it cannot miss what they show.
func (s *source) fetch(ctx context.Context, tx *sql.Tx, w *work) (f fetched, err error) {
	parked := func() (mark string, err error) {
		if s.outbox.opts.HoldParked {
			err = tx.QueryRowContext(ctx, s.outbox.sql.mark).Scan(&mark)
		}
		return mark, err
	}
	if w.from > 0 {
		if f, err = s.read(ctx, tx, w); err != nil {
			return f, err
		}
		mark, err := parked()
		if err != nil || mark == w.parked {
			return f, err
		}
		w.from, w.sweep = 0, true
	}
	if w.parked, err = parked(); err != nil {
		return f, err
	}
	return s.read(ctx, tx, w)
}

// read reads the rows after w.from.
func (s *source) read(ctx context.Context, tx *sql.Tx, w *work) (f fetched, err error) {
	o := s.outbox
	rows, err := tx.QueryContext(ctx, o.sql.fetch, w.from, o.opts.Dialect.Integers(w.held), o.opts.Dialect.Strings(w.blocked), w.limit, w.bytes)
	if err != nil {
		return f, err
	}
	defer rows.Close()
	n, size := 0, 0
	var held map[string]bool // keys of which a row may not be tried yet
	for size < w.bytes && rows.Next() {
		e := &entry{source: s, term: w.term}
		var attempts int
		var stored, wait int64
		if err := rows.Scan(&e.seq, &e.key, &e.raw, &attempts, &stored, &wait, &f.ended, &f.number); err != nil {
			return f, err
		}
		n++
		size += len(e.raw)
		f.last = e.seq
		e.attempt = attempts + 1
		e.stored = time.UnixMicro(stored).UTC()
		most := o.opts.MaxAttempts
		switch {
		case held[e.key]:
			continue
		case wait > 0:
			f.waiting = append(f.waiting, waiting{e.key, e.seq, time.Duration(wait) * time.Millisecond})
			if held == nil {
				held = make(map[string]bool)
			}
			held[e.key] = true
			continue
		case most > 0 && attempts >= most:
			f.unfit = append(f.unfit, failure{seq: e.seq, key: e.key, attempt: attempts, reason: fmt.Sprintf("%d attempts of %d failed: %s", attempts, most, lostReason), park: true})
			continue
		}
		if e.value, err = event.Unmarshal(e.raw); err != nil {
			f.unfit = append(f.unfit, failure{seq: e.seq, key: e.key, attempt: attempts, reason: "it does not decode: " + err.Error(), park: true})
			continue
		}
		f.entries = append(f.entries, e)
	}
	f.full = n == w.limit || size >= w.bytes
	return f, rows.Err()
}
