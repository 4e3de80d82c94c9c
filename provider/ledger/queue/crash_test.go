package queue_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

var crashes = flag.Int("crashes", 30, "how many crashes to simulate")

// Appends, deletions and consumers run until the power goes, at a moment of
// chance; what was not synced by then is there or not, file block by file block.
// After that: every entry that was acknowledged, and not deleted, is there, in
// its place; nothing has a place that another had; what a consumer settled and
// flushed is not delivered again, and everything else is.
func TestCrashes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range *crashes {
		fs := vfs.NewCrashableMem()
		h := &history{}
		for life := range 3 { // a crash during what follows a crash, too
			fs = h.live(t, fs, rng, fmt.Sprintf("crash %d.%d", i, life))
			if t.Failed() {
				return
			}
		}
	}
}

// A history is what is known of a ledger that crashed.
type history struct {
	next    int               // the next record
	acked   map[string]uint64 // acknowledged data, and where it stood
	places  map[uint64]string // what was ever read at a place
	deleted uint64            // DeleteTo was called with at most that
	cleaned uint64            // and returned with at least that
	settled map[uint64]bool   // Settle was called
	flushed map[uint64]bool   // and Flush returned
}

func (h *history) live(t *testing.T, fs *vfs.MemFS, rng *rand.Rand, name string) *vfs.MemFS {
	if h.acked == nil {
		h.acked, h.places = map[string]uint64{}, map[uint64]string{}
		h.settled, h.flushed = map[uint64]bool{}, map[uint64]bool{}
	}
	db, guard, err := queue.OpenDB("dir", &pebble.Options{FS: fs, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	l, err := queue.OpenLedger(db, []byte("l"), &queue.LedgerOptions{RowBytes: 200, TailBytes: 2000, Failed: guard.Err})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	h.check(t, l, name)
	tb := queue.OpenTable(db, []byte("t"))
	h.checkMarks(t, l, tb, name)
	p := queue.NewProducer(l, &queue.ProducerOptions{Duplicates: time.Hour})

	const callers = 4
	stop := make(chan struct{})
	crash := 1 + rng.IntN(60)
	var done, deleting atomic.Int64
	var mu sync.Mutex
	var acked []string
	var wg sync.WaitGroup
	start := h.next
	for c := range callers {
		size := 1 + rng.IntN(3)
		pad := bytes.Repeat([]byte("."), rng.IntN(400))
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				var rs []queue.Record
				var names []string
				for k := range size {
					r := record(start + (i*size+k)*callers + c)
					r.Data = append(r.Data, pad...)
					rs = append(rs, r)
					names = append(names, string(r.Data))
				}
				err := p.Append(t.Context(), rs...)
				mu.Lock()
				if err == nil {
					acked = append(acked, names...)
				}
				mu.Unlock()
				if err != nil {
					return
				}
				done.Add(1)
			}
		})
	}
	c, err := queue.NewConsumer(l, tb, "c", nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	settles, deletes := rng.IntN(2) == 0, rng.IntN(2) == 0
	var settled, flushed []uint64
	wg.Go(func() {
		for n := range 500 { // then the window would be full
			select {
			case <-stop:
				return
			default:
			}
			e, err := c.Next(t.Context())
			if lost := (*queue.LostError)(nil); errors.As(err, &lost) {
				continue
			} else if err != nil {
				return
			}
			if h.flushed[e.Seq] {
				t.Errorf("%s: entry %d was settled and flushed, and is delivered again", name, e.Seq)
			}
			if settles && n%7 != 3 {
				mu.Lock()
				settled = append(settled, e.Seq)
				mu.Unlock()
				if c.Settle(e.Seq) != nil {
					return
				}
			}
			if n%20 == 19 && c.Flush() == nil {
				mu.Lock()
				flushed = settled
				mu.Unlock()
			}
		}
	})
	var cleaned atomic.Uint64
	if deletes {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				to := l.First() + (l.Next()-l.First())/3
				deleting.Store(int64(to))
				if l.DeleteTo(to) != nil {
					return
				}
				cleaned.Store(to)
			}
		})
	}
	for done.Load() < int64(crash) {
		time.Sleep(10 * time.Microsecond)
	}
	// What is known now was known before the crash.
	mu.Lock()
	ackedNow, flushedNow := acked, flushed
	cleanedNow := cleaned.Load()
	mu.Unlock()
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: split(rng)})
	deletedNow := uint64(deleting.Load())
	mu.Lock()
	settledNow := settled
	mu.Unlock()
	close(stop)
	p.Close()
	c.Close()
	wg.Wait()
	if err := db.Close(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}

	for _, d := range ackedNow {
		h.acked[d] = 0
	}
	for _, seq := range settledNow {
		h.settled[seq] = true
	}
	for _, seq := range flushedNow {
		h.flushed[seq] = true
	}
	h.cleaned = max(h.cleaned, cleanedNow)
	h.deleted = max(h.deleted, deletedNow)
	h.next += callers * 3 * (int(done.Load()) + callers + 10)
	return crashed
}

// check looks at a ledger that was opened after a crash.
func (h *history) check(t *testing.T, l *queue.Ledger, name string) {
	first := l.First()
	if first < h.cleaned || first > max(h.deleted, 1) && first > h.cleaned {
		t.Errorf("%s: the first entry is %d; deleted were %d to %d", name, first, h.cleaned, h.deleted)
	}
	present := map[string]bool{}
	for i, d := range readAll(t, l) {
		seq := first + uint64(i)
		if present[d] {
			t.Errorf("%s: %q is there twice", name, d)
		}
		present[d] = true
		if at, ok := h.acked[d]; ok {
			if at != 0 && at != seq {
				t.Errorf("%s: %q was at %d, and is at %d now", name, d, at, seq)
			}
			h.acked[d] = seq
		}
		if was, ok := h.places[seq]; ok && was != d {
			t.Errorf("%s: place %d is used again: %q, %q", name, seq, was, d)
		}
		h.places[seq] = d
	}
	// What is gone must have been deleted: it stood below First.
	missing := 0
	for d, at := range h.acked {
		if !present[d] && (at == 0 || at >= first) {
			missing++
		}
	}
	if missing > 0 && first == 1 {
		t.Errorf("%s: %d acknowledged entries are missing", name, missing)
	} else if uint64(missing) > first-1 {
		t.Errorf("%s: %d acknowledged entries are missing, and only %d were deleted", name, missing, first-1)
	}
}

// checkMarks looks at what a consumer has left.
func (h *history) checkMarks(t *testing.T, l *queue.Ledger, tb *queue.Table, name string) {
	m, _, ok, err := tb.Load("c")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if !ok {
		if len(h.flushed) > 0 {
			t.Errorf("%s: the marks are gone", name)
		}
		return
	}
	for seq := range h.flushed {
		if !m.Marked(seq) {
			t.Errorf("%s: entry %d was settled and flushed, and is not marked", name, seq)
		}
	}
	for seq := l.First(); seq < l.Next(); seq++ {
		if m.Marked(seq) && !h.settled[seq] {
			t.Errorf("%s: entry %d is marked, and was not settled", name, seq)
		}
	}
}

func split(r *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), r.Uint64())) }
