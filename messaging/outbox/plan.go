package outbox

import "time"

const (
	// flushDelay is how long what was settled waits for more.
	flushDelay = 5 * time.Millisecond

	// minPause is the shortest pause between two looks for events, while there
	// is no backlog. It doubles with each look that finds nothing, up to
	// Options.Poll.
	minPause = 5 * time.Millisecond

	// restFactor is how much longer than the last transaction took the database
	// is left to the writers, while there is no backlog.
	restFactor = 4

	// sweepPause is how long, at least, nobody looks at every row: another
	// process may have had parked events retried. What is committed late is not
	// left to that, see position.
	sweepPause = time.Second

	// maxBlocked is how many keys may be held up, before nothing is fetched
	// until one of them is not. PostgreSQL looks each row's key up in a hash of
	// them, as long as that fits into its work_mem, of 4 MB by default.
	maxBlocked = 1 << 15
)

// A position says from where on rows are fetched. Rows appear before others that
// were seen, when their transactions commit, and the next event of their key may
// be written right after that: a fetch that passed over the first would see the
// next. So a fetch begins where nothing can appear any more, however long
// transactions take.
//
// PostgreSQL numbers transactions, and a writer has its number before its rows
// have theirs. A transaction of the relay that begins after the row past was seen
// has a greater number than all that have rows up to there. Once those before it
// have ended, a fetch sees all of these rows, and later ones may begin after them.
// A transaction that stays open, in whatever database of the server, has fetches
// begin early and pass over more rows that are deleted; it does not hold them up.
type position struct {
	seen    int64 // to here everything was fetched that was to be seen
	past    int64 // what seen was
	pastEnd int64 // what has rows up to past has a number below; 0: not known yet
	old     int64 // to here all has ended, and was fetched

	sweepAt time.Time // when to begin at the first row again
	parked  string    // tells the events that were parked then from others
}

// from returns after which row to fetch.
func (p *position) from(now time.Time) (seq int64, sweep bool) {
	if !now.Before(p.sweepAt) {
		return 0, true
	}
	return min(p.old, p.seen), false
}

// moves takes what a fetch tells of transactions, when seen is what it made it. If
// there was more than was fetched, seen is where that begins.
func (p *position) moves(f fetched) {
	switch {
	case f.last == 0: // nothing tells
	case p.pastEnd == 0:
		p.pastEnd = f.number
	case f.ended >= p.pastEnd:
		p.old, p.past, p.pastEnd = p.past, p.seen, 0
	}
}

// back makes sure that what follows a row is fetched again.
func (p *position) back(seq int64) { p.seen = min(p.seen, seq-1) }

// A schedule says when to look for events.
type schedule struct {
	lookAt time.Time
	restTo time.Time // not before that, if it can wait
	pause  time.Duration
	more   bool // the last fetch left something
	hungry bool // a Receive found nothing

	applyAt time.Time // when to ask for the lease
}

// found sets when to look next.
func (c *schedule) found(now time.Time, something, more bool, poll time.Duration) {
	if something {
		c.pause = minPause
	} else {
		c.pause = min(max(2*c.pause, minPause), poll)
	}
	c.more = more
	c.lookAt = now.Add(min(c.pause, poll))
}

// A work is what one transaction is to do.
type work struct {
	term   int64
	acked  []int64
	failed []failure

	limit   int   // rows to fetch; 0: none
	bytes   int   // of events to fetch; the last may be more
	from    int64 // after this row
	sweep   bool
	parked  string // see position
	looks   bool   // only if a look without a transaction finds something
	held    []int64
	blocked []string
}

// plan returns what to do now, or nil and how long there is nothing to do.
func (s *source) plan() (*work, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	opts := &s.outbox.opts
	next := s.expires.Add(-2 * opts.Lease / 3) // to renew the lease
	renew := !now.Before(next)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, e := range s.out {
		if now.Before(e.deadline) {
			sooner(e.deadline)
			continue
		}
		s.reclaims(e, now)
	}
	for key, b := range s.blocked {
		if now.Before(b.due) {
			sooner(b.due)
			continue
		}
		delete(s.blocked, key)
		s.back(b.seq)
		s.lookAt = now
	}
	settled := len(s.acked) + len(s.failed)
	flush := false
	if settled > 0 {
		at := latest(s.first.Add(flushDelay), s.restTo)
		flush = settled >= (s.window+1)/2 || !now.Before(at)
		if !flush {
			sooner(at)
		}
	}
	held := len(s.ready) + len(s.out)
	room := s.window - held
	fetch := false
	switch {
	case len(s.blocked) >= maxBlocked, room <= 0:
	case s.window < opts.Window && held > 0: // careful: one window after another
	case room < (s.window+1)/2 && !(s.hungry && len(s.ready) == 0):
	case s.more || !now.Before(latest(s.lookAt, s.restTo)):
		fetch = true
	default:
		sooner(latest(s.lookAt, s.restTo))
	}
	bytes := maxFetched
	if fetch {
		bytes -= s.bytes()
		fetch = bytes > 0 // or until something is settled
	}
	if !fetch && !flush && !renew {
		return nil, max(next.Sub(now), 0)
	}
	w := &work{term: s.term}
	w.acked, s.acked = s.acked, nil
	w.failed, s.failed = s.failed, nil
	if fetch {
		w.limit, w.bytes = room, bytes
		w.looks = !s.more && settled == 0 && !renew
		w.from, w.sweep = s.from(now)
		w.parked = s.parked
		for _, e := range s.ready {
			w.held = append(w.held, e.seq)
		}
		for seq := range s.out {
			w.held = append(w.held, seq)
		}
		for key := range s.blocked {
			w.blocked = append(w.blocked, key)
		}
	}
	return w, 0
}

// bytes returns how many bytes of events are held. s.mu is held.
func (s *source) bytes() (n int) {
	for _, e := range s.ready {
		n += len(e.raw)
	}
	for _, e := range s.out {
		n += len(e.raw)
	}
	return n
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
