package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/event"
)

// Stats is the state of an outbox at some moment. Oldest is the one to watch: it
// grows when nothing is relayed, whatever the reason.
type Stats struct {
	Pending int           // events that wait to be published
	Oldest  time.Duration // how long the oldest of these has waited; 0: there is none
	Parked  int           // events that are not tried any more
}

// Stats counts, which reads the whole table.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	var oldest int64
	err := o.db.QueryRowContext(ctx, o.sql.stats).Scan(&s.Pending, &s.Parked, &oldest)
	if err != nil {
		return Stats{}, fmt.Errorf("outbox: count %v: %w", o.table, err)
	}
	s.Oldest = time.Duration(oldest) * time.Microsecond
	return s, nil
}

// A Parked is an event that is not tried any more.
type Parked struct {
	Sequence uint64
	Event    event.Event // the zero Event if the row does not decode
	Raw      []byte      // the event as it is stored
	Reason   string      // of the last failure; messaging.MaxReason bytes at most
	Attempts int
	Stored   time.Time
	Since    time.Time // when it was parked
}

// Parked returns parked events in their order: at most limit, after a sequence,
// which is 0 for the first ones.
func (o *Outbox) Parked(ctx context.Context, after uint64, limit int) ([]Parked, error) {
	rows, err := o.db.QueryContext(ctx, o.sql.parked, int64(after), limit)
	if err != nil {
		return nil, fmt.Errorf("outbox: read %v: %w", o.table, err)
	}
	defer rows.Close()
	var list []Parked
	for rows.Next() {
		var p Parked
		var stored, since int64
		if err := rows.Scan(&p.Sequence, &p.Raw, &p.Attempts, &p.Reason, &stored, &since); err != nil {
			return nil, fmt.Errorf("outbox: read %v: %w", o.table, err)
		}
		p.Event, _ = event.Unmarshal(p.Raw) // Reason says why not
		p.Stored, p.Since = time.UnixMicro(stored).UTC(), time.UnixMicro(since).UTC()
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("outbox: read %v: %w", o.table, err)
	}
	return list, nil
}

// Retry has parked events published again, from attempt 1 on, in their place: the
// events of the key that waited come after, those that went on without it have
// gone before. It returns how many of the sequences were parked.
func (o *Outbox) Retry(ctx context.Context, sequences ...uint64) (int, error) {
	n, err := o.settle(ctx, o.sql.retry, sequences)
	if err != nil {
		return 0, fmt.Errorf("outbox: retry parked events of %v: %w", o.table, err)
	}
	return n, nil
}

// Discard deletes parked events: they are never published. It returns how many of
// the sequences were parked.
func (o *Outbox) Discard(ctx context.Context, sequences ...uint64) (int, error) {
	n, err := o.settle(ctx, o.sql.discard, sequences)
	if err != nil {
		return 0, fmt.Errorf("outbox: discard parked events of %v: %w", o.table, err)
	}
	return n, nil
}

func (o *Outbox) settle(ctx context.Context, query string, sequences []uint64) (int, error) {
	list := make([]int64, len(sequences))
	for i, n := range sequences {
		list[i] = int64(n)
	}
	n, err := o.opts.Dialect.Exec(ctx, o.db, query, o.opts.Dialect.Integers(list))
	if err != nil {
		return 0, err
	}
	o.sweep()
	return n, nil
}

// sweep makes the relays of this process look at every row.
func (o *Outbox) sweep() {
	for _, s := range o.all() {
		s.mu.Lock()
		s.sweepAt = time.Time{}
		s.mu.Unlock()
		s.wake(true)
	}
}
