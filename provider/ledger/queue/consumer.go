package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrInUse says that a name has a consumer already.
var ErrInUse = errors.New("queue: the name has a consumer already")

// ConsumerOptions are the settings of a consumer. The zero value and nil stand
// for the defaults.
type ConsumerOptions struct {
	// Start is where a name that the table does not know yet begins. Default
	// 0: at the first entry that is not deleted.
	Start uint64

	// Window bounds how many entries may be delivered and not settled. Default
	// 1024.
	Window int

	// Patience bounds how long Next waits because of the window: after that it
	// returns a *StuckError. Default 0: as long as its context lets it.
	Patience time.Duration

	// FlushDelay and FlushCount bound what is settled and not on the disk yet:
	// that old, or that many. Default 10 ms and 4096.
	FlushDelay time.Duration
	FlushCount int
}

// A LostError says that a consumer came too late for some entries: they were
// deleted before it was given them. The consumer goes on behind them.
type LostError struct {
	From, To uint64 // the entries from From to the one before To
	Entries  uint64 // how many of these it had not settled yet
}

// Error names the entries.
func (e *LostError) Error() string {
	return fmt.Sprintf("queue: %d entries from %d to %d were deleted before they were delivered", e.Entries, e.From, e.To-1)
}

// A StuckError says that the window of a consumer stayed full. The consumer
// lives on: once entries are settled, Next delivers again.
type StuckError struct {
	Oldest uint64        // the entry that was delivered first and is not settled
	Window int           // how many there are
	After  time.Duration // how long Next waited
}

// Error names the entry that holds the consumer up.
func (e *StuckError) Error() string {
	return fmt.Sprintf("queue: %d entries are delivered and not settled, the oldest is %d, and none was settled in %v", e.Window, e.Oldest, e.After)
}

// A Consumer delivers the entries of a ledger in order, and remembers in a table
// which are settled. One that is opened under the name of an earlier one delivers
// what that one did not settle, and then what follows: each entry at least once,
// a settled one again only if the process ends within FlushDelay, or power is
// lost then. Its methods are safe for concurrent use.
type Consumer struct {
	l    *Ledger
	t    *Table
	name string
	opts ConsumerOptions

	turn   chan struct{} // who delivers holds it
	closed chan struct{}
	down   chan struct{} // closed when Close has done its work
	result error         // of Close, once down
	// Below: for who holds the turn.
	buf []Entry

	flushing chan struct{} // who saves the marks holds it

	mu sync.Mutex
	// Below: under mu.
	marks   *Marks
	extra   []byte
	at      uint64 // everything before it is delivered or settled
	out     int    // delivered and not settled
	dirty   int    // settled and not saved
	timer   *time.Timer
	settled chan struct{} // room for one: the window has room again
	done    bool
	err     error // saving failed
}

// NewConsumer opens the consumer of a name, and registers the name in the table
// if it is new: from then on a cleaner keeps for it what it has not settled. The
// name can have one consumer at a time.
func NewConsumer(l *Ledger, t *Table, name string, opts *ConsumerOptions) (*Consumer, error) {
	c := &Consumer{
		l: l, t: t, name: name,
		turn: make(chan struct{}, 1), closed: make(chan struct{}), down: make(chan struct{}),
		flushing: make(chan struct{}, 1), settled: make(chan struct{}, 1),
	}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Window <= 0 {
		c.opts.Window = 1024
	}
	if c.opts.FlushDelay <= 0 {
		c.opts.FlushDelay = 10 * time.Millisecond
	}
	if c.opts.FlushCount <= 0 {
		c.opts.FlushCount = 4096
	}
	if !t.take(name) {
		return nil, fmt.Errorf("consumer %q: %w", name, ErrInUse)
	}
	if err := c.register(); err != nil {
		t.drop(name)
		return nil, err
	}
	c.at = c.marks.Floor()
	return c, nil
}

// register loads the marks, or saves new ones. No cleaner runs meanwhile: it
// would not know the name yet.
func (c *Consumer) register() (err error) {
	c.t.gate <- struct{}{}
	defer func() { <-c.t.gate }()
	var ok bool
	if c.marks, c.extra, ok, err = c.t.Load(c.name); ok || err != nil {
		return err
	}
	start := c.opts.Start
	if start == 0 {
		start = c.l.First()
	}
	c.marks = NewMarks(start)
	return c.save()
}

// save writes the marks to the disk.
func (c *Consumer) save() error {
	b := c.t.db.NewBatch()
	c.mu.Lock()
	err := c.t.Save(b, c.name, c.marks, c.extra)
	c.dirty = 0
	c.mu.Unlock()
	if err == nil {
		err = c.l.Commit(b, !c.l.opts.NoSync)
	}
	if err != nil {
		return fmt.Errorf("queue: save the marks of %q: %w", c.name, err)
	}
	return nil
}

// Next delivers the next entry that is not settled; it waits for one, and for
// room in the window. It returns
//
//   - a *LostError, once, when entries were deleted that it had not delivered,
//   - a *StuckError when the window stays full for longer than Patience,
//   - a *DamageError when the entry cannot be read, each time until it is settled
//     with SettleRange, and another error when reading may succeed later,
//   - ErrClosed after Close, and the error of ctx.
//
// No error ends the consumer but ErrClosed, and that of a failed ledger.
func (c *Consumer) Next(ctx context.Context) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-c.closed:
		return Entry{}, ErrClosed
	case <-ctx.Done():
		return Entry{}, ctx.Err()
	}
	for {
		if err := c.room(ctx); err != nil {
			return Entry{}, err
		}
		if e, ok := c.deliver(); ok {
			return e, nil
		}
		changed := c.l.Changed()
		if err := c.fill(); err != nil {
			return Entry{}, err
		}
		if len(c.buf) > 0 {
			continue
		}
		if err := c.l.Err(); err != nil {
			return Entry{}, err
		}
		select {
		case <-changed:
		case <-c.closed:
			return Entry{}, ErrClosed
		case <-ctx.Done():
			return Entry{}, ctx.Err()
		}
	}
}

// room waits until the window has room.
func (c *Consumer) room(ctx context.Context) error {
	var patience <-chan time.Time
	for {
		c.mu.Lock()
		out, oldest, done := c.out, c.marks.Floor(), c.done
		c.mu.Unlock()
		if done {
			return ErrClosed
		}
		if out < c.opts.Window {
			return nil
		}
		if patience == nil && c.opts.Patience > 0 {
			t := time.NewTimer(c.opts.Patience)
			defer t.Stop()
			patience = t.C
		}
		select {
		case <-c.settled:
		case <-patience:
			return &StuckError{Oldest: oldest, Window: out, After: c.opts.Patience}
		case <-c.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// deliver takes the next entry from the buffer, if there is one.
func (c *Consumer) deliver() (Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) > 0 && !c.done {
		e := c.buf[0]
		c.buf[0] = Entry{}
		c.buf = c.buf[1:]
		if e.Seq < c.at || c.marks.Marked(e.Seq) {
			continue
		}
		c.at = e.Seq + 1
		c.out++
		return e, true
	}
	return Entry{}, false
}

const (
	fillEntries = 1024
	fillBytes   = 256 << 10
)

// fill reads the next entries into the buffer.
func (c *Consumer) fill() error {
	c.mu.Lock()
	from := c.marks.Unmarked(c.at)
	c.mu.Unlock()
	buf, err := c.l.Read(from, fillEntries, fillBytes)
	if err != nil {
		return err
	}
	first := c.l.First()
	if len(buf) > 0 {
		first = buf[0].Seq
	}
	if first > from && from < c.l.Next() {
		c.mu.Lock()
		lost := c.marks.MarkRange(max(from, c.at), first)
		c.at = max(c.at, first)
		c.touch(int(min(lost, 1<<30)))
		c.mu.Unlock()
		c.buf = buf
		if lost > 0 {
			return &LostError{From: from, To: first, Entries: lost}
		}
	}
	c.buf = buf
	return nil
}

// Settle says that entries are done: they are not delivered again. Settling one
// twice does nothing. One that was not delivered yet is an error, and then none
// is settled. It does not wait for the disk: see FlushDelay and Flush.
func (c *Consumer) Settle(seqs ...uint64) error {
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return ErrClosed
	}
	if err := c.err; err != nil {
		c.mu.Unlock()
		return err
	}
	for _, seq := range seqs {
		if seq >= c.at {
			c.mu.Unlock()
			return fmt.Errorf("queue: settle %d: it was not delivered", seq)
		}
	}
	n := 0
	for _, seq := range seqs {
		if c.marks.Mark(seq) {
			n++
		}
	}
	c.out -= n
	c.touch(n)
	c.mu.Unlock()
	return nil
}

// SettleRange settles the entries from from to the one before to, delivered or
// not: those that were not are skipped.
func (c *Consumer) SettleRange(from, to uint64) error {
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return ErrClosed
	}
	c.out -= int(c.marks.MarkRange(from, min(to, c.at)))
	n := c.marks.MarkRange(max(from, c.at), to)
	c.touch(int(min(n, 1<<30)) + 1)
	c.mu.Unlock()
	return nil
}

// touch notes that so many marks are new: who waits for the window may go on,
// and they are to be saved. Under mu, as the marks are set: a Close between the
// two would not save them.
func (c *Consumer) touch(n int) {
	if n == 0 {
		return
	}
	select {
	case c.settled <- struct{}{}:
	default:
	}
	was := c.dirty
	c.dirty += n
	switch {
	case c.done:
	case was == 0 && c.timer == nil:
		c.timer = time.AfterFunc(c.opts.FlushDelay, c.flushLater)
	case was == 0:
		c.timer.Reset(c.opts.FlushDelay)
	case was < c.opts.FlushCount && c.dirty >= c.opts.FlushCount:
		c.timer.Reset(0)
	}
}

func (c *Consumer) flushLater() { _ = c.Flush() } // which keeps the error

// Flush returns when everything that was settled before is on the disk.
func (c *Consumer) Flush() error {
	c.flushing <- struct{}{}
	defer func() { <-c.flushing }()
	c.mu.Lock()
	dirty, err := c.dirty, c.err
	c.mu.Unlock()
	if dirty == 0 || err != nil {
		return err
	}
	if err = c.save(); err != nil {
		c.mu.Lock()
		c.err = err // the ledger's last
		c.mu.Unlock()
	}
	return err
}

// Settled returns the lowest entry that is not settled, and how many are that
// were delivered.
func (c *Consumer) Settled() (floor uint64, out int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.marks.Floor(), c.out
}

// Close saves what was settled and frees the name. What was delivered and not
// settled is delivered to the name's next consumer. Calls of Next return
// ErrClosed. Whoever calls it again waits for the first, and gets the same.
func (c *Consumer) Close() error {
	c.mu.Lock()
	first := !c.done
	c.done = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if first {
		c.result = c.shut()
		close(c.down)
	}
	<-c.down
	return c.result
}

func (c *Consumer) shut() error {
	close(c.closed)
	err := c.Flush()
	c.turn <- struct{}{} // no Next is left that uses the ledger
	c.t.drop(c.name)
	return err
}

// isClosed reports whether Close has done its work.
func (c *Consumer) isClosed() bool {
	select {
	case <-c.down:
		return true
	default:
		return false
	}
}
