package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/internal/database"
	"github.com/catchment-events/catchment/reactor"
)

// Source opens a source of what stands in the outbox, in the order of the
// inserts; an ack deletes, a reject parks. It delivers once it holds the lease,
// for which it waits as long as another source does, in this process or another.
// ctx bounds the call, not the source.
//
// A relay is a reactor on it that publishes: [Outbox.Relay] makes one, and so do
//
//	reactor.RunBatch(ctx, src, outbox.PublishTo(broker), opts)
//	reactor.Run(ctx, src, publishOne, &messaging.Options{Concurrency: 8, Key: messaging.PartitionKey})
//
// An event of which an attempt failed holds up the later ones of its key that
// were not received yet. Keeping those in order that were is up to the reactor:
// PublishTo does it, with a Concurrency of 1, and so does Options.Key.
//
// Settles return at once and are written some milliseconds later, many in one
// transaction: a relay that is killed may deliver again what it acked last. Close
// writes them all. A settle returns ErrLost when the lease may have run out, and
// when the source was closed.
func (o *Outbox) Source(ctx context.Context) (messaging.Source, error) {
	if err := database.Migrated(ctx, o.db, o.table, o.migrations); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	s := &source{
		outbox:    o,
		kick:      make(chan struct{}, 1),
		available: make(chan struct{}, 1),
		renewed:   make(chan struct{}),
		closing:   make(chan struct{}),
		kept:      make(chan struct{}),
	}
	o.register(s)
	go s.keep()
	return s, nil
}

// A source is one relay's part of an outbox. One goroutine, the keeper, talks to
// the database: it takes the lease and keeps it, fetches, and writes what was
// settled.
type source struct {
	outbox    *Outbox
	kick      chan struct{} // the keeper has something to do; room for one
	available chan struct{} // there is something to receive; room for one
	closing   chan struct{} // closed by Close
	kept      chan struct{} // closed when the keeper has returned
	closed    sync.Once
	closeErr  error // after kept

	mu sync.Mutex
	// Below: under mu.
	ended   bool
	term    int64         // 0: another source works, or none
	expires time.Time     // of the lease, by the clock of this process
	renewed chan struct{} // closed and replaced when expires or term changes
	ready   []*entry      // by seq
	out     map[int64]*entry
	acked   []int64   // to be written
	failed  []failure // to be written
	first   time.Time // when the first of these was settled
	blocked map[string]*block
	window  int // how much may be held: less after a relay has died
	position
	schedule
}

// An entry is an event that is held: it was claimed and is not settled.
type entry struct {
	source  *source
	term    int64
	seq     int64
	key     string
	attempt int
	stored  time.Time
	raw     []byte
	value   event.Event // the zero Event once it was taken

	deadline time.Time // of its delivery; under the source's mu
}

// take returns the event, which is the receiver's to change. After a release it
// is decoded again.
func (e *entry) take() (v event.Event) {
	if v, e.value = e.value, (event.Event{}); v.Context == nil {
		v, _ = event.Unmarshal(e.raw) // as it did before
	}
	return v
}

// A failure is what is to be written about an attempt that failed.
type failure struct {
	seq     int64
	key     string
	attempt int
	reason  string
	due     time.Time
	park    bool
}

// A block keeps the events of a key back until an earlier one may be fetched
// again.
type block struct {
	seq int64
	due time.Time
}

func (s *source) Receive(ctx context.Context) (*messaging.Delivery, error) {
	for woken := false; ; {
		if err := ctx.Err(); err != nil {
			if woken {
				s.signals() // what this was woken for is another Receive's
			}
			return nil, err
		}
		e, deadline, err := s.next()
		switch {
		case err != nil:
			return nil, err
		case e != nil:
			info := reactor.Info{Attempt: e.attempt, MaxAttempts: s.outbox.opts.MaxAttempts, Sequence: uint64(e.seq), Stored: e.stored}
			return reactor.NewDelivery(e.take(), info, deadline, e), nil
		}
		select {
		case <-s.available:
			woken = true
		case <-ctx.Done():
		case <-s.closing:
		}
	}
}

// next takes the first event that is ready, if there is one.
func (s *source) next() (*entry, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, time.Time{}, messaging.ErrClosed
	}
	if len(s.ready) == 0 || !time.Now().Before(s.expires) {
		s.hungry = true
		s.kicks()
		return nil, time.Time{}, nil
	}
	e := s.ready[0]
	s.ready[0] = nil
	s.ready = s.ready[1:]
	s.out[e.seq] = e
	e.deadline = s.expires
	if len(s.ready) > 0 {
		s.signals() // for another Receive that waits
	}
	return e, s.expires, nil
}

// kicks and signals do not block; s.mu may be held.
func (s *source) kicks() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *source) signals() {
	select {
	case s.available <- struct{}{}:
	default:
	}
}

// Settle implements reactor.Settler.
func (e *entry) Settle(_ context.Context, o reactor.Outcome) error {
	s := e.source
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.ended || e.term != s.term || s.out[e.seq] != e || !now.Before(s.expires) {
		return messaging.ErrLost
	}
	delete(s.out, e.seq)
	if o.Result == reactor.Released {
		s.returns(e)
		return nil
	}
	if len(s.acked)+len(s.failed) == 0 {
		s.first = now
	}
	if o.Result == reactor.Acked {
		s.acked = append(s.acked, e.seq)
	} else {
		s.fails(e, o, now)
	}
	// Not for each: when there is a first to write, enough to write, or enough
	// room to fetch.
	settled, held := len(s.acked)+len(s.failed), len(s.ready)+len(s.out)
	if settled == 1 || settled == (s.window+1)/2 || held == s.window/2 || held == 0 {
		s.kicks()
	}
	return nil
}

// returns takes back an event that was not tried. s.mu is held.
func (s *source) returns(e *entry) {
	if b := s.blocked[e.key]; b != nil {
		b.seq = min(b.seq, e.seq) // it is fetched again, with the one that blocks its key
		return
	}
	i, _ := slices.BinarySearchFunc(s.ready, e.seq, func(r *entry, seq int64) int { return cmp.Compare(r.seq, seq) })
	s.ready = slices.Insert(s.ready, i, e)
	s.signals()
}

// fails notes a failed attempt. s.mu is held.
func (s *source) fails(e *entry, o reactor.Outcome, now time.Time) {
	f := failure{seq: e.seq, key: e.key, attempt: e.attempt, reason: o.Reason, due: now.Add(max(o.After, 0))}
	most := s.outbox.opts.MaxAttempts
	f.park = o.Result == reactor.Rejected || most > 0 && e.attempt >= most
	s.notes(f, now)
}

// notes keeps a failure to be written, and keeps back what is to wait for its
// event. s.mu is held.
func (s *source) notes(f failure, now time.Time) {
	s.failed = append(s.failed, f)
	switch {
	case !f.park:
		s.blocks(f.key, f.seq, f.due)
	case s.outbox.opts.HoldParked:
		s.blocks(f.key, f.seq, now) // from then on the database does
	}
}

// reclaims takes back what was neither settled nor extended in time: its delivery
// is lost, although the lease is not [ACK-2]. s.mu is held.
func (s *source) reclaims(e *entry, now time.Time) {
	delete(s.out, e.seq)
	if len(s.acked)+len(s.failed) == 0 {
		s.first = now
	}
	s.fails(e, reactor.Outcome{Result: reactor.Retried, Reason: "it was not settled in time"}, now)
}

// blocks keeps back the events of a key. Those that are ready are given up: they
// are fetched again. s.mu is held.
func (s *source) blocks(key string, seq int64, due time.Time) {
	if b := s.blocked[key]; b != nil {
		b.seq = min(b.seq, seq)
		if b.due.Before(due) {
			b.due = due
		}
	} else {
		s.blocked[key] = &block{seq, due}
	}
	s.ready = slices.DeleteFunc(s.ready, func(r *entry) bool { return r.key == key && r.seq > seq })
}

// Extend implements reactor.Settler. The lease is one for all that is held, and
// the keeper keeps it, so there is mostly nothing to do.
func (e *entry) Extend(ctx context.Context) (time.Time, error) {
	s := e.source
	for {
		s.mu.Lock()
		now := time.Now()
		lost := s.ended || e.term != s.term || s.out[e.seq] != e || !now.Before(s.expires)
		expires, renewed := s.expires, s.renewed
		fresh := !lost && expires.Sub(now) >= s.outbox.opts.Lease/2
		if fresh {
			e.deadline = expires
		}
		s.mu.Unlock()
		switch {
		case lost:
			return time.Time{}, messaging.ErrLost
		case fresh:
			return expires, nil
		}
		s.kicks()
		select {
		case <-renewed:
		case <-ctx.Done():
			return time.Time{}, errors.Join(errors.New("outbox: the lease was not renewed in time"), ctx.Err())
		}
	}
}

// Close writes what was settled, gives up the lease, and waits for that.
func (s *source) Close() error {
	s.closed.Do(func() {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		close(s.closing)
	})
	<-s.kept
	return s.closeErr
}
