package queue

import (
	"context"
	"sync"
	"time"
)

// ProducerOptions are the settings of a producer. The zero value and nil stand
// for the defaults.
type ProducerOptions struct {
	// GroupEntries and GroupBytes bound what one commit stores, but for a
	// single call that is larger. Default 8192 and 1 MiB.
	GroupEntries int
	GroupBytes   int

	// Linger is how long a commit waits for more entries while it is not
	// full. Default 0: a commit takes what came during the one before.
	Linger time.Duration

	// PendingEntries and PendingBytes bound what waits to be committed. At
	// the bound Append waits, as long as its context does. A larger call waits
	// until nothing else is pending. Default 65536 and 64 MiB.
	PendingEntries int
	PendingBytes   int

	// Duplicates is the deduplication window: a record whose ID was stored
	// less than that ago is not stored again. A duplicate does not extend it.
	// The IDs are kept in the ledger, so the window survives a restart, and in
	// memory. Default 0: every record is stored.
	Duplicates time.Duration

	// MaxEntries and MaxBytes bound the ledger: a call that would go beyond
	// them is refused with ErrFull, as a whole. Default 0: no bound.
	MaxEntries uint64
	MaxBytes   uint64

	// DiscardOldest makes room for what is new by deleting the oldest entries
	// in the same commit. Then only a call that alone is beyond the bounds is
	// refused with ErrFull.
	DiscardOldest bool

	// Discarding, if not nil, is called before the entries from from up to the
	// one before to are discarded, by the goroutine that is about to, with no
	// lock held. They can still be read until it returns. When the commit then
	// fails they may still be there.
	Discarding func(from, to uint64)
}

// A Producer appends to a ledger for many callers at a time: what they append
// while a commit is on its way to the disk goes into the next, with one sync for
// all. Its methods are safe for concurrent use. Entries stand in the order in
// which the calls came; those of one call stand together.
//
// Only one producer of a ledger at a time may look for duplicates or heed
// bounds: it does not see what others have pending.
type Producer struct {
	l      *Ledger
	opts   ProducerOptions
	loaded chan struct{} // closed when the window is there
	broken error         // the window could not be loaded; once loaded is closed
	wg     sync.WaitGroup

	mu sync.Mutex
	// Below: under mu.
	closed  bool
	ripe    sync.Cond  // a group is full, or has waited long enough
	window  *window    // nil: no duplicates
	queue   []*pending // in order; the first may be on its way to the disk
	leading bool       // somebody stores the queue
	entries int        // in queue
	bytes   int
	waiters []*waiter // Appends that wait for room, in order
	hint    int       // how many bytes the next group will probably have
}

// A pending group is one that has not been stored yet.
type pending struct {
	group
	lot   *lot
	done  chan struct{} // closed once stored; nil: nobody but the leader waits
	full  bool          // nothing more may join
	late  bool          // the leader has lingered
	calls []func(error)
	err   error // once done
}

// NewProducer returns a producer for a ledger. It returns at once: what the
// ledger keeps of the deduplication window is loaded meanwhile, and the first
// Append waits for it.
func NewProducer(l *Ledger, opts *ProducerOptions) *Producer {
	p := &Producer{l: l, loaded: make(chan struct{})}
	p.ripe.L = &p.mu
	if opts != nil {
		p.opts = *opts
	}
	atLeast := func(n *int, or int) {
		if *n <= 0 {
			*n = or
		}
	}
	atLeast(&p.opts.GroupEntries, 8192)
	atLeast(&p.opts.GroupBytes, 1<<20)
	atLeast(&p.opts.PendingEntries, 1<<16)
	atLeast(&p.opts.PendingBytes, 64<<20)
	if p.opts.Duplicates <= 0 {
		close(p.loaded)
		return p
	}
	p.wg.Go(func() {
		p.window, p.broken = loadWindow(l, p.opts.Duplicates)
		close(p.loaded)
	})
	return p
}

// Append stores the records, all or none, and returns when they are on the disk
// (see [LedgerOptions].NoSync). A duplicate counts as stored, once the first is.
//
// It returns ErrFull beyond the bounds and ErrClosed after Close. When ctx is
// done before there is room, nothing is stored; when it ends later, Append
// returns its error at once and the records may be stored. When the database
// fails meanwhile, the error wraps ErrUnknown; after that, nothing is stored any
// more: see [Ledger].
func (p *Producer) Append(ctx context.Context, records ...Record) error {
	g, lead, err := p.enqueue(ctx, records, nil)
	if g == nil || err != nil {
		return err
	}
	if lead && ctx.Done() == nil {
		p.store(g)
		p.handOver()
		return g.err
	}
	if lead {
		go p.run()
	}
	select {
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AppendFunc is Append without the wait for the disk: it returns once the
// records have their place in the order, and done is called with the outcome,
// in that order, by the goroutine that commits: done must return soon, and must
// not append to the same producer. When AppendFunc returns an error, done is not
// called. ctx bounds the wait for room only.
func (p *Producer) AppendFunc(ctx context.Context, done func(error), records ...Record) error {
	g, lead, err := p.enqueue(ctx, records, done)
	if err != nil {
		return err
	}
	if g == nil {
		done(nil)
	} else if lead {
		go p.run()
	}
	return nil
}

// Seen reports whether a record with this ID would be a duplicate now of one
// that is stored. Without a window, and before that is loaded, it is false.
func (p *Producer) Seen(id [16]byte) bool {
	select {
	case <-p.loaded:
	default:
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.window == nil {
		return false
	}
	l := p.window.find(id, time.Now())
	return l != nil && l.group == nil
}

// Close waits for what is pending, then returns. Appends that come later or
// still wait for room return ErrClosed.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.closed = true
	w := p.head()
	p.mu.Unlock()
	p.ripe.Broadcast()
	w.signal()
	p.wg.Wait()
	return nil
}
