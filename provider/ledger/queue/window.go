package queue

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// A window knows the IDs that were stored lately. It forgets a few at each
// append, so that it costs no pause when many leave it at once.
type window struct {
	length time.Duration
	seen   *idTable // its numbers are those of lot.from on
	lots   []*lot   // oldest first
	half   int      // how many IDs of the first are forgotten already
	passed int      // lots forgotten since ID rows were deleted

	touched uint64 // keeps prepare from being optimised away
}

// A lot is the IDs of one commit.
type lot struct {
	from   uint64 // how many IDs came before
	ids    [][16]byte
	first  uint64 // sequence of the first entry, once stored
	stored time.Time
	group  *pending // nil once stored
}

const (
	forgetIDs  = 4  // IDs to forget for each that comes
	forgetLots = 64 // lots whose rows are deleted at once
)

func newWindow(length time.Duration) *window {
	w := &window{length: length}
	w.seen = newIDTable(func(no uint64) *[16]byte {
		l := w.lot(no)
		return &l.ids[(no-l.from)&idMask]
	})
	return w
}

// lot returns the lot of the ID with a number.
func (w *window) lot(no uint64) *lot {
	from := w.lots[0].from
	no = (no - from) & idMask
	after := sort.Search(len(w.lots), func(i int) bool { return w.lots[i].from-from > no })
	return w.lots[after-1]
}

// count returns how many IDs there have been.
func (w *window) count() uint64 {
	if len(w.lots) == 0 {
		return 0
	}
	latest := w.lots[len(w.lots)-1]
	return latest.from + uint64(len(latest.ids))
}

// prepare makes ready for records that come together.
func (w *window) prepare(records []Record) {
	if len(records) < 8 {
		return
	}
	var sum uint64
	for i := range records {
		sum ^= w.seen.touch(&records[i].ID)
	}
	w.touched = sum
}

// open starts a lot for probably so many IDs.
func (w *window) open(g *pending, ids int) *lot {
	l := &lot{from: w.count(), group: g, ids: make([][16]byte, 0, ids)}
	w.lots = append(w.lots, l)
	return l
}

// find returns the lot that holds an ID, unless it is older than the window.
func (w *window) find(id [16]byte, now time.Time) *lot {
	no, ok := w.seen.find(&id)
	if !ok {
		return nil
	}
	if l := w.lot(no); !w.over(l, now) {
		return l
	}
	return nil
}

// note puts an ID into the latest lot, unless a lot holds it that is not older
// than the window: that one it returns.
func (w *window) note(id *[16]byte, now time.Time) *lot {
	s, old := w.seen.put(id)
	if old {
		if l := w.lot(s.no()); !w.over(l, now) {
			return l
		}
	}
	s.set(w.count())
	latest := w.lots[len(w.lots)-1]
	latest.ids = append(latest.ids, *id)
	return nil
}

// over reports whether what a lot holds is older than the window.
func (w *window) over(l *lot, now time.Time) bool {
	return l.group == nil && now.Sub(l.stored) >= w.length
}

// settle notes that the group of a lot is stored, or could not be.
func (w *window) settle(g *pending) {
	l := g.lot
	l.group = nil
	if g.err == nil {
		l.first, l.stored = g.rows[0].first, g.stored
	}
}

// forget forgets about n IDs, if as many are older than the window.
func (w *window) forget(n int, now time.Time) {
	n = n*forgetIDs + 1
	for len(w.lots) > 1 && n > 0 {
		l := w.lots[0]
		if !w.over(l, now) {
			return
		}
		for ; w.half < len(l.ids) && n > 0; n-- {
			w.seen.delete(&l.ids[w.half], l.from+uint64(w.half))
			w.half++
		}
		if w.half < len(l.ids) {
			return
		}
		n--
		w.lots[0] = nil
		w.lots, w.half = w.lots[1:], 0
		w.passed++
	}
}

// expired returns the sequence before which the ledger may delete ID rows, 0
// when it is not worth it yet.
func (w *window) expired() uint64 {
	if w.passed < forgetLots || w.lots[0].group != nil {
		return 0
	}
	w.passed = 0
	return w.lots[0].first
}

// loadWindow returns the window with what a ledger keeps of it.
func loadWindow(l *Ledger, length time.Duration) (*window, error) {
	w := newWindow(length)
	lots, all, err := l.lots(time.Now().Add(-length))
	if err != nil {
		return nil, fmt.Errorf("queue: load the deduplication window: %w", err)
	}
	for _, t := range slices.Backward(lots) {
		t.from = w.count()
		w.lots = append(w.lots, t)
		for i := range t.ids {
			s, _ := w.seen.put(&t.ids[i])
			s.set(t.from + uint64(i))
		}
	}
	if !all {
		w.passed = forgetLots // there are rows to delete
	}
	return w, nil
}

// lots returns the IDs of the commits after a time, the latest first, and
// whether these are all that there are.
func (l *Ledger) lots(after time.Time) (lots []*lot, all bool, err error) {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: l.key(kindIDs, 0), UpperBound: l.key(kindIDs, maxSeq)})
	if err != nil {
		return nil, false, err
	}
	defer it.Close()
	for it.Last(); it.Valid(); it.Prev() {
		first, err := l.seqOf(it.Key())
		if err != nil {
			return nil, false, err
		}
		b, err := it.ValueAndErr()
		if err != nil {
			return nil, false, err
		}
		if len(b)%16 != 8 {
			return nil, false, fmt.Errorf("the row at %d has %d bytes", first, len(b))
		}
		t := &lot{first: first, stored: time.Unix(0, int64(binary.BigEndian.Uint64(b)))}
		if !t.stored.After(after) {
			return lots, false, nil
		}
		t.ids = make([][16]byte, len(b)/16)
		for i := range t.ids {
			copy(t.ids[i][:], b[8+16*i:])
		}
		lots = append(lots, t)
	}
	return lots, true, it.Error()
}
