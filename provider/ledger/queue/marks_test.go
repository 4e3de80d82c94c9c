package queue_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// A model of marks is a set.
func TestMarksAreASet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const limit = 3000
		start := rapid.Uint64Range(0, 10).Draw(rt, "floor")
		m := queue.NewMarks(start)
		var model [limit + 1]bool
		for i := range start {
			model[i] = true
		}
		mark := func(from, to uint64) (fresh uint64) {
			for ; from < to; from++ {
				if !model[from] {
					model[from] = true
					fresh++
				}
			}
			return fresh
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				floor := uint64(0)
				for model[floor] {
					floor++
				}
				above, ranges := uint64(0), 0
				for i := floor; i < limit; i++ {
					if model[i] {
						above++
						if !model[i-1] {
							ranges++
						}
					}
				}
				if m.Floor() != floor || m.Above() != above || m.Ranges() != ranges {
					rt.Fatalf("floor %d, %d above in %d ranges, want %d, %d, %d", m.Floor(), m.Above(), m.Ranges(), floor, above, ranges)
				}
				last := floor
				for from, to := range m.All() {
					if from <= last || to <= from {
						rt.Fatalf("range [%d, %d) behind %d", from, to, last)
					}
					for i := last; i < to; i++ {
						if model[i] != (i >= from) {
							rt.Fatalf("range [%d, %d) behind %d: %d is wrong", from, to, last, i)
						}
					}
					last = to
				}
			},
			"mark": func(rt *rapid.T) {
				seq := rapid.Uint64Range(0, limit-1).Draw(rt, "seq")
				want := mark(seq, seq+1) == 1
				if got := m.Mark(seq); got != want {
					rt.Fatalf("Mark(%d): %t, want %t", seq, got, want)
				}
			},
			"mark a range": func(rt *rapid.T) {
				from := rapid.Uint64Range(0, limit-1).Draw(rt, "from")
				to := rapid.Uint64Range(0, min(limit, from+100)).Draw(rt, "to")
				want := mark(from, to)
				if got := m.MarkRange(from, to); got != want {
					rt.Fatalf("MarkRange(%d, %d): %d, want %d", from, to, got, want)
				}
			},
			"mark many": func(rt *rapid.T) {
				from := rapid.Uint64Range(0, limit/2).Draw(rt, "from")
				step := rapid.Uint64Range(2, 5).Draw(rt, "step")
				for i := from; i < limit; i += step {
					if got, want := m.Mark(i), mark(i, i+1) == 1; got != want {
						rt.Fatalf("Mark(%d): %t, want %t", i, got, want)
					}
				}
			},
			"look": func(rt *rapid.T) {
				seq := rapid.Uint64Range(0, limit-1).Draw(rt, "seq")
				if m.Marked(seq) != model[seq] {
					rt.Fatalf("Marked(%d): %t", seq, m.Marked(seq))
				}
				want := seq
				for model[want] {
					want++
				}
				if got := m.Unmarked(seq); got != want {
					rt.Fatalf("Unmarked(%d): %d, want %d", seq, got, want)
				}
			},
			"save and load": func(rt *rapid.T) {
				b, err := m.AppendBinary([]byte("before"))
				if err != nil {
					rt.Fatal(err)
				}
				m = new(queue.Marks)
				if err := m.UnmarshalBinary(b[len("before"):]); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

func TestTenMillionMarksOutOfOrderCostKilobytes(t *testing.T) {
	const window, total = 1024, 10_000_000
	before := heap()
	m := queue.NewMarks(1)
	r := rand.New(rand.NewPCG(1, 2))
	var open []uint64 // marks that are due within the window
	next, most := uint64(1), 0
	for m.Floor() <= total {
		for len(open) < window && next <= total && next < m.Floor()+window {
			open = append(open, next)
			next++
		}
		i := r.IntN(len(open))
		if !m.Mark(open[i]) {
			t.Fatalf("%d was marked twice", open[i])
		}
		open[i] = open[len(open)-1]
		open = open[:len(open)-1]
		most = max(most, m.Ranges())
	}
	if grown := heap() - before; grown > 64<<10 {
		t.Errorf("the marks take %d bytes", grown)
	}
	if most > window/2 {
		t.Errorf("there were %d ranges at a time", most)
	}
	b, err := m.AppendBinary(nil)
	if err != nil || len(b) > 10 {
		t.Errorf("marks without a gap take %d bytes, %v", len(b), err)
	}
}

func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func TestMarksBehindAGapAreCompact(t *testing.T) {
	m := queue.NewMarks(0)
	for i := uint64(10_000_000); i > 0; i-- {
		m.Mark(i)
	}
	if m.Ranges() != 1 || m.Floor() != 0 || m.Above() != 10_000_000 {
		t.Fatalf("%d ranges above %d", m.Ranges(), m.Floor())
	}
	m.Mark(0)
	if m.Ranges() != 0 || m.Floor() != 10_000_001 {
		t.Fatalf("%d ranges above %d", m.Ranges(), m.Floor())
	}
}

func FuzzMarks(f *testing.F) {
	m := queue.NewMarks(300)
	for i := uint64(302); i < 400; i += 3 {
		m.Mark(i)
	}
	b, err := m.AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{1, 0, 0})
	f.Add([]byte{1, 0, 1, 0, 1})
	f.Add([]byte{1, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{2, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := queue.NewMarks(77)
		if err := m.UnmarshalBinary(b); err != nil {
			if m.Floor() != 77 || m.Ranges() != 0 {
				t.Error("what does not parse changed the marks")
			}
			return
		}
		back, err := m.AppendBinary(nil)
		if err != nil || !bytes.Equal(back, b) {
			t.Errorf("%x was read as %x, %v", b, back, err)
		}
	})
}

func TestTable(t *testing.T) {
	s := newStore(t)
	tb := s.table()
	if _, _, ok, err := tb.Load("none"); ok || err != nil {
		t.Errorf("Load of a name that is not there: %t, %v", ok, err)
	}
	m := queue.NewMarks(3)
	m.Mark(7)
	b := s.db.NewBatch()
	for _, name := range []string{"a", "b", "\xff"} {
		if err := tb.Save(b, name, m, []byte("extra "+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(nil); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Set([]byte("u"), []byte("another's"), nil); err != nil {
		t.Fatal(err)
	}
	s.reopen()
	tb = s.table()
	got, extra, ok, err := tb.Load("b")
	if err != nil || !ok || string(extra) != "extra b" || got.Floor() != 3 || !got.Marked(7) || got.Marked(8) {
		t.Errorf("Load: %v, %q, %t, %v", got, extra, ok, err)
	}
	b = s.db.NewBatch()
	if err := tb.Delete(b, "a"); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(nil); err != nil {
		t.Fatal(err)
	}
	names, err := tb.Names()
	if diff := cmp.Diff([]string{"b", "\xff"}, names); diff != "" || err != nil {
		t.Errorf("Names: %v (-want +got):\n%s", err, diff)
	}
	floors, err := tb.Floors()
	if diff := cmp.Diff(map[string]uint64{"b": 3, "\xff": 3}, floors); diff != "" || err != nil {
		t.Errorf("Floors: %v (-want +got):\n%s", err, diff)
	}
	if err := s.db.Set([]byte("tb"), []byte{9}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := tb.Load("b"); err == nil {
		t.Error("Load of a damaged row: no error")
	}
}
