package ledger

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// A log is what a consumer reads: the events of the broker, or the dead letters
// of a subscription. Sequences go from 1 up. Those of dead letters have gaps.
type log interface {
	first() uint64 // the first sequence that may be there
	end() uint64   // the sequence that the next entry will have
	// read returns entries from a sequence on, and where to go on reading. A
	// *queue.DamageError says that some cannot be read, and where to go on.
	read(from uint64, entries, bytes int) ([]queue.Entry, uint64, error)
	since(t time.Time) (uint64, error)
	typ(data []byte) ([]byte, error) // of an entry's event
	// open takes the data of an entry apart.
	open(data []byte) (event []byte, annotations map[string]string, err error)

	losses() uint64 // changes when entries have gone that may have been read ahead

	await(c *consumer) // tell it when the log has grown, once
	leave(c *consumer) // do not
}

// at reads one entry; false: there is none.
func at(l log, seq uint64) (queue.Entry, bool, error) {
	es, _, err := l.read(seq, 1, 1)
	if err != nil || len(es) == 0 || es[0].Seq != seq {
		return queue.Entry{}, false, err
	}
	return es[0], true, nil
}

// position is the first sequence that a start selects in a log.
func position(l log, s messaging.Start) (uint64, error) {
	if s.New() {
		return l.end(), nil
	}
	if t, ok := s.Time(); ok {
		return l.since(t)
	}
	if seq, ok := s.Sequence(); ok {
		return max(seq, l.first()), nil // also one that is yet to come
	}
	return l.first(), nil
}

// waiting are the consumers of a log that have a Receive that waits.
type waiting struct {
	some atomic.Bool
	mu   sync.Mutex
	set  map[*consumer]struct{} // under mu
}

func (w *waiting) await(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		w.set = make(map[*consumer]struct{})
	}
	w.set[c] = struct{}{}
	w.some.Store(true)
}

func (w *waiting) leave(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.set, c)
	w.some.Store(len(w.set) > 0)
}

// grown tells those that wait.
func (w *waiting) grown() {
	if !w.some.Load() {
		return
	}
	w.mu.Lock()
	set := w.set
	w.set = nil
	w.some.Store(false)
	w.mu.Unlock()
	for c := range set {
		c.grown()
	}
}

// events is the log of the broker.
type events struct {
	*queue.Ledger
	waiting
}

func (l *events) first() uint64 { return l.Ledger.First() }
func (l *events) end() uint64   { return l.Ledger.Next() }

func (l *events) read(from uint64, entries, bytes int) ([]queue.Entry, uint64, error) {
	es, err := l.Ledger.Read(from, entries, bytes)
	if err != nil || len(es) == 0 {
		return nil, max(from, l.first()), err
	}
	return es, es[len(es)-1].Seq + 1, nil
}

func (l *events) since(t time.Time) (uint64, error) { return l.Ledger.Since(t) }

func (l *events) losses() uint64 { return 0 } // discarding sees to it

func (l *events) typ(data []byte) ([]byte, error) { return eventType(data) }

func (l *events) open(data []byte) ([]byte, map[string]string, error) { return data, nil, nil }
