// Package queue holds the pieces that persistent queues are made of, on a
// directory of the machine: a ledger, a producer, a consumer, a table of what is
// settled, a cleaner, and a queue that bundles them. They stand on Pebble, and
// work on any open database of its version 2.
//
// # Usage
//
//	q, err := queue.Open(dir, nil)
//	...
//	defer q.Close()
//	err = q.Append(ctx, queue.Record{Data: []byte("hello")}) // on the disk when it returns
//
//	c, err := q.Consumer("mailer", nil)
//	e, err := c.Next(ctx)
//	...
//	err = c.Settle(e.Seq) // does not come again
//
// The pieces are there to be used by themselves:
//
//   - A [Ledger] is an append-only sequence of entries, numbered from 1 without
//     gaps: append, read from anywhere, delete the oldest, wait for growth.
//   - A [Producer] lets many callers append with one sync for all that come at a
//     time, finds duplicates, and heeds bounds.
//   - [Marks] are a compact set of sequences, and a [Table] keeps them under
//     names.
//   - A [Consumer] delivers each entry at least once to whoever has its name.
//   - A [Cleaner] deletes what is too old, too much, or done.
//   - [OpenDB] opens a database such that a full or broken disk is an error and
//     not the end of the process: see [Guard].
//
// # Concurrency
//
// Everything but [Marks] is safe for concurrent use. A ledger starts no
// goroutine. A producer has one while it commits, a consumer a timer while
// something is to be flushed, a queue one for its cleaner; the Close of each
// waits for its own.
//
// # Durability
//
// What Append stored is synced when it returns, unless [LedgerOptions].NoSync
// says otherwise. After a crash every entry that was acknowledged is there, in
// its place; entries that were on their way may be. What was settled is on the
// disk within [ConsumerOptions].FlushDelay; a crash before that delivers it
// again. A deletion is on the disk when DeleteTo returns.
//
// When a write fails, the append that met it returns an error that wraps
// [ErrUnknown], and nothing is stored any more until the database is opened
// anew. What is there can be read all the while. Entries that cannot be read --
// Pebble keeps checksums -- are a [DamageError] that names them; those around
// them are read.
//
// # Speed
//
// Entries stand in rows, of up to 64 KiB under one key, so a commit of hundreds
// of entries costs the database one insertion, not hundreds. Concurrent appends
// share commits; there is one on its way at a time, and what comes meanwhile goes
// into the next. Readers that keep up are served from memory. Nothing depends on
// how long the ledger is: opening one reads its first and its last row, and
// finding an entry by its time is a binary search.
//
// # Format
//
// All numbers are big endian but for the ends of entries. With P for the prefix
// of a ledger, it has these keys, each with a number of 8 bytes:
//
//	P 'm' 0      meta row: format (1 byte, 1), then 8 bytes each: first
//	             sequence not deleted, bytes of all entries before that one,
//	             time in Unix nanoseconds before which nothing from there on
//	             was stored
//	P 'e' first  a row of entries: format (1 byte, 1), time of the commit (8
//	             bytes, Unix nanoseconds), number of entries n (4 bytes), bytes
//	             of all entries in rows before this one (8 bytes), n ends (4
//	             bytes each, little endian: where the data of the entry ends),
//	             the data of the entries
//	P 'i' first  the IDs of a commit that starts with that sequence, while the
//	             deduplication window needs them: time of the commit (8 bytes),
//	             16 bytes for each ID
//
// The first row may start before the first sequence that is not deleted. Rows
// before that may be there: they are on their way out. A table has one key for
// each name, its prefix followed by the name: the length of the marks (uvarint),
// the marks, and what their owner put beside them. Marks are their format (1
// byte, 1), the floor, the number of ranges, and for each the gap before it and
// its length, all uvarints. A queue keeps its ledger under "l" and its table
// under "t".
//
// A format that is newer than what this version knows is an error when the
// ledger is opened.
package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options are the settings of a queue. The zero value and nil stand for the
// defaults.
type Options struct {
	Ledger   LedgerOptions
	Producer ProducerOptions

	// Cleaner says what is deleted, once a second. Default: what every
	// registered consumer has settled.
	Cleaner *CleanerOptions

	// FS is where the directory is. Default: the file system of the machine.
	FS vfs.FS
}

const cleanPause = time.Second

// A Queue is a ledger in a directory of its own with what belongs to it: a
// producer, consumers, and a cleaner. Its methods are safe for concurrent use.
type Queue struct {
	db       *pebble.DB
	ledger   *Ledger
	table    *Table
	producer *Producer

	stop   context.CancelFunc
	wg     sync.WaitGroup
	down   chan struct{} // closed when Close has done its work
	result error         // of Close, once down

	mu sync.Mutex
	// Below: under mu.
	closed  bool
	cleaned error // of the last cleaning
	open    map[*Consumer]bool
}

// Open opens the queue in a directory, or starts one there. A directory can be
// open once at a time, on the whole machine.
func Open(dir string, opts *Options) (*Queue, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Cleaner == nil {
		o.Cleaner = &CleanerOptions{Settled: true}
	}
	db, guard, err := OpenDB(dir, &pebble.Options{
		FS:                 o.FS,
		FormatMajorVersion: pebble.FormatNewest,
		MemTableSize:       64 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	o.Ledger.Failed = guard.Err
	l, err := OpenLedger(db, []byte("l"), &o.Ledger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open queue %s: %w", dir, err), db.Close())
	}
	q := &Queue{db: db, ledger: l, table: OpenTable(db, []byte("t")), down: make(chan struct{}), open: make(map[*Consumer]bool)}
	q.producer = NewProducer(l, &o.Producer)
	var ctx context.Context
	ctx, q.stop = context.WithCancel(context.Background())
	cleaner := NewCleaner(l, q.table, o.Cleaner)
	q.wg.Go(func() {
		for ctx.Err() == nil {
			_, err := cleaner.Clean()
			q.mu.Lock()
			q.cleaned = err
			q.mu.Unlock()
			select {
			case <-time.After(cleanPause):
			case <-ctx.Done():
			}
		}
	})
	return q, nil
}

// Append stores the records: see [Producer.Append].
func (q *Queue) Append(ctx context.Context, records ...Record) error {
	return q.producer.Append(ctx, records...)
}

// Consumer opens a consumer: see [NewConsumer]. Close closes it, if nobody did.
func (q *Queue) Consumer(name string, opts *ConsumerOptions) (*Consumer, error) {
	q.mu.Lock()
	closed := q.closed
	if !closed {
		q.wg.Add(1) // the database stays open for this call
	}
	q.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	defer q.wg.Done()
	c, err := NewConsumer(q.ledger, q.table, name, opts)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	closed = q.closed
	if !closed {
		maps.DeleteFunc(q.open, func(c *Consumer, _ bool) bool { return c.isClosed() })
		q.open[c] = true
	}
	q.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, c.Close())
	}
	return c, nil
}

// Ledger returns the ledger.
func (q *Queue) Ledger() *Ledger { return q.ledger }

// Table returns the table of the consumers' marks.
func (q *Queue) Table() *Table { return q.table }

// Close closes consumers and producer, stops the cleaner, and closes the
// database. It returns the error after which the queue stored or deleted nothing
// more, if there was one. Whoever calls it again waits for the first, and gets the
// same.
func (q *Queue) Close() error {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	q.mu.Unlock()
	if first {
		q.result = q.shut()
		close(q.down)
	}
	<-q.down
	return q.result
}

func (q *Queue) shut() error {
	err := q.producer.Close()
	for c := range q.open {
		err = errors.Join(err, c.Close())
	}
	q.stop()
	q.wg.Wait()
	if failed := q.ledger.Err(); failed != nil {
		err = failed // the others are its children
	} else {
		err = errors.Join(err, q.cleaned)
	}
	if err := errors.Join(err, q.db.Close()); err != nil {
		return fmt.Errorf("close queue: %w", err)
	}
	return nil
}
