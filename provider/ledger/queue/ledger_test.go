package queue_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// A model of a ledger is a slice and the number of what was deleted of it.
func TestLedgerIsASliceOfWhatWasAppended(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStore(t)
		opts := &queue.LedgerOptions{
			RowBytes:  rapid.IntRange(1, 200).Draw(rt, "row bytes"),
			TailBytes: rapid.IntRange(1, 2000).Draw(rt, "tail bytes"),
		}
		l := s.ledger(opts)
		var model [][]byte
		var stored []time.Time
		first := uint64(1)
		size := func() (n uint64) {
			for _, d := range model[first-1:] {
				n += uint64(len(d))
			}
			return n
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				if f, n := l.First(), l.Next(); f != first || n != uint64(len(model))+1 {
					rt.Fatalf("the ledger is [%d, %d), want [%d, %d)", f, n, first, len(model)+1)
				}
				if n := l.Len(); n != uint64(len(model))-first+1 {
					rt.Fatalf("Len: %d, want %d", n, uint64(len(model))-first+1)
				}
				if n := l.Bytes(); n != size() {
					rt.Fatalf("Bytes: %d, want %d", n, size())
				}
			},
			"append": func(rt *rapid.T) {
				var rs []queue.Record
				for _, d := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 50), 1, 20).Draw(rt, "data") {
					rs = append(rs, queue.Record{Data: d})
					model = append(model, bytes.Clone(d))
				}
				got, err := l.Append(rs...)
				if want := uint64(len(model)-len(rs)) + 1; err != nil || got != want {
					rt.Fatalf("Append: %d, %v, want %d", got, err, want)
				}
				for len(stored) < len(model) {
					entries, err := l.Read(uint64(len(stored))+1, 0, 0)
					if err != nil || len(entries) == 0 {
						rt.Fatalf("Read: %d entries, %v", len(entries), err)
					}
					for _, e := range entries {
						stored = append(stored, e.Stored)
					}
				}
				for _, r := range rs { // they are the caller's again
					clear(r.Data)
				}
			},
			"delete": func(rt *rapid.T) {
				to := rapid.Uint64Range(0, uint64(len(model))+3).Draw(rt, "to")
				if err := l.DeleteTo(to); err != nil {
					rt.Fatal(err)
				}
				first = max(first, min(to, uint64(len(model))+1))
			},
			"read": func(rt *rapid.T) {
				from := rapid.Uint64Range(0, uint64(len(model))+3).Draw(rt, "from")
				entries := rapid.IntRange(0, 30).Draw(rt, "entries")
				size := rapid.IntRange(0, 300).Draw(rt, "bytes")
				got, err := l.Read(from, entries, size)
				if err != nil {
					rt.Fatal(err)
				}
				from = max(from, first)
				if len(got) == 0 && from <= uint64(len(model)) {
					rt.Fatalf("Read(%d) returns nothing", from)
				}
				if entries > 0 && len(got) > entries {
					rt.Fatalf("Read returns %d entries, want at most %d", len(got), entries)
				}
				sum := 0
				for i, e := range got {
					want := queue.Entry{Seq: from + uint64(i), Stored: stored[from+uint64(i)-1], Data: model[from+uint64(i)-1]}
					if e.Seq != want.Seq || !e.Stored.Equal(want.Stored) || !bytes.Equal(e.Data, want.Data) {
						rt.Fatalf("Read(%d): entry %d is %v, want %v", from, i, e, want)
					}
					sum += len(e.Data)
				}
				if size > 0 && len(got) > 1 && sum > size {
					rt.Fatalf("Read returns %d bytes, want at most %d", sum, size)
				}
			},
			"since": func(rt *rapid.T) {
				if len(stored) == 0 {
					return
				}
				at := rapid.SampledFrom(stored).Draw(rt, "time").Add(time.Duration(rapid.IntRange(-1, 1).Draw(rt, "more")))
				want := first
				for want <= uint64(len(stored)) && stored[want-1].Before(at) {
					want++
				}
				if got, err := l.Since(at); err != nil || got != want {
					rt.Fatalf("Since: %d, %v, want %d", got, err, want)
				}
			},
			"reopen": func(*rapid.T) {
				s.reopen()
				l = s.ledger(opts)
			},
		})
		s.close()
	})
}

func TestReadReturnsAnEntryLargerThanItsBounds(t *testing.T) {
	l := newStore(t).ledger(&queue.LedgerOptions{RowBytes: 100, TailBytes: 1})
	big := bytes.Repeat([]byte("x"), 1<<20)
	mustAppend(t, l, queue.Record{Data: []byte("a")}, queue.Record{Data: big}, queue.Record{Data: []byte("b")})
	got, err := l.Read(2, 10, 10)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].Data, big) {
		t.Fatalf("Read: %d entries, %v, want the big one", len(got), err)
	}
}

func TestStoredNeverGoesBack(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	var last time.Time
	for i := range 100 {
		mustAppend(t, l, record(i))
		if i%10 == 9 {
			if err := l.DeleteTo(l.Next()); err != nil {
				t.Fatal(err)
			}
			s.reopen()
			l = s.ledger(nil)
			continue
		}
		entries, err := l.Read(l.Next()-1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if entries[0].Stored.Before(last) {
			t.Fatalf("entry %d is stored at %v, after one at %v", entries[0].Seq, entries[0].Stored, last)
		}
		last = entries[0].Stored
	}
}

func TestChangedMissesNothing(t *testing.T) {
	l := newStore(t).ledger(nil)
	const n = 500
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			seen := uint64(1)
			for seen <= n {
				changed := l.Changed()
				if next := l.Next(); next > seen {
					seen = next
					continue
				}
				<-changed
			}
		})
	}
	for i := range n {
		mustAppend(t, l, record(i))
	}
	wg.Wait()
}

func TestGrownTellsWhatCanBeRead(t *testing.T) {
	s := newStore(t)
	var l *queue.Ledger
	var told atomic.Uint64
	l = s.ledger(&queue.LedgerOptions{Grown: func(next uint64) {
		if l.Next() < next { // and it holds no lock: this call would hang
			t.Errorf("told of %d, but the next entry is %d", next, l.Next())
		}
		for old := told.Load(); old < next && !told.CompareAndSwap(old, next); old = told.Load() {
		}
	}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				mustAppend(t, l, record(i))
			}
		})
	}
	wg.Wait()
	if told.Load() != 401 {
		t.Errorf("told of %d, want 401", told.Load())
	}
}

func TestReadDuringDeletionReturnsNoError(t *testing.T) {
	l := newStore(t).ledger(&queue.LedgerOptions{RowBytes: 64, TailBytes: 1})
	const n = 3000
	for i := 0; i < n; i += 10 {
		mustAppend(t, l, records(i, i+10)...)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for l.First() < n {
				from := l.First()
				got, err := l.Read(from, 5, 0)
				if err != nil {
					t.Errorf("Read(%d): %v", from, err)
					return
				}
				for i, e := range got {
					if want := fmt.Sprintf("entry %d", e.Seq-1); e.Seq < from || e.Seq != got[0].Seq+uint64(i) || string(e.Data) != want {
						t.Errorf("Read(%d): entry %d is %q", from, e.Seq, e.Data)
					}
				}
				if _, err := l.Since(time.Now().Add(-time.Hour)); err != nil {
					t.Errorf("Since: %v", err)
				}
			}
		})
	}
	for seq := uint64(1); seq <= n+1; seq += 7 {
		if err := l.DeleteTo(seq); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.DeleteTo(n + 1); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestDeletionGivesSpaceBack(t *testing.T) {
	s := newStore(t)
	l := s.ledger(&queue.LedgerOptions{RowBytes: 64})
	mustAppend(t, l, records(0, 1000)...)
	if err := l.DeleteTo(900); err != nil {
		t.Fatal(err)
	}
	if n := rows(t, s.db); n > 150 {
		t.Errorf("after the deletion of 899 entries of 1000 there are %d rows", n)
	}
	p := queue.NewProducer(l, &queue.ProducerOptions{MaxEntries: 10, DiscardOldest: true})
	for i := range 1000 {
		if err := p.Append(t.Context(), record(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := rows(t, s.db); n > 200 {
		t.Errorf("a ledger bounded to 10 entries has %d rows", n)
	}
}

// rows counts the rows of a ledger.
func rows(t *testing.T, db *pebble.DB) (n int) {
	t.Helper()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte("le"), UpperBound: []byte("lf")})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	return n
}

func TestDamagedRowsAreNamedAndTheOthersAreRead(t *testing.T) {
	s := newStore(t)
	opts := &queue.LedgerOptions{RowBytes: 1, TailBytes: 1}
	l := s.ledger(opts)
	mustAppend(t, l, records(0, 10)...)
	key := func(seq byte) []byte { return []byte{'l', 'e', 0, 0, 0, 0, 0, 0, 0, seq} }
	value := func(seq byte) []byte {
		v, closer, err := s.db.Get(key(seq))
		if err != nil {
			t.Fatal(err)
		}
		defer closer.Close()
		return bytes.Clone(v)
	}
	tests := []struct {
		name  string
		write func() error
		want  string
	}{
		{"cut short", func() error { return s.db.Set(key(4), value(5)[:15], pebble.Sync) }, "row of 15 bytes"},
		{"empty", func() error { return s.db.Set(key(4), nil, pebble.Sync) }, "empty row"},
		{"too many entries", func() error {
			v := value(5)
			v[12] = 200
			return s.db.Set(key(4), v, pebble.Sync)
		}, "200 entries"},
		{"ends beyond its end", func() error {
			v := value(5)
			v[21] = 99
			return s.db.Set(key(4), v, pebble.Sync)
		}, "should hold 99"},
		{"of a newer version", func() error {
			v := value(5)
			v[0] = 2
			return s.db.Set(key(4), v, pebble.Sync)
		}, "format 2"},
		{"missing", func() error { return s.db.Delete(key(4), pebble.Sync) }, "missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.write(); err != nil {
				t.Fatal(err)
			}
			l := s.ledger(opts)
			var got []uint64
			for seq := uint64(1); seq < l.Next(); {
				entries, err := l.Read(seq, 0, 0)
				var damage *queue.DamageError
				if errors.As(err, &damage) {
					if damage.From != 4 || damage.To != 5 {
						t.Errorf("damage is from %d to %d, want 4 to 5", damage.From, damage.To)
					}
					if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "entries 4 to 4") {
						t.Errorf("error %q does not say %q and which entries", err, tt.want)
					}
					seq = damage.To
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					got = append(got, e.Seq)
				}
				seq = got[len(got)-1] + 1
			}
			if diff := cmp.Diff([]uint64{1, 2, 3, 5, 6, 7, 8, 9, 10}, got); diff != "" {
				t.Errorf("entries read (-want +got):\n%s", diff)
			}
			// What makes room goes over it.
			if tt.name == "missing" {
				p := queue.NewProducer(l, &queue.ProducerOptions{MaxEntries: 5, DiscardOldest: true})
				if err := p.Append(t.Context(), record(10)); err != nil {
					t.Fatal(err)
				}
				if l.First() != 7 || l.Len() != 5 {
					t.Errorf("the ledger is [%d, %d), want [7, 12)", l.First(), l.Next())
				}
			}
		})
	}
}

func TestOpenRefusesANewerFormat(t *testing.T) {
	s := newStore(t)
	s.ledger(nil)
	if err := s.db.Set([]byte{'l', 'm', 0, 0, 0, 0, 0, 0, 0, 0}, []byte{2, 1, 2, 3}, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	_, err := queue.OpenLedger(s.db, []byte("l"), nil)
	if err == nil || !strings.Contains(err.Error(), "newer version") || !strings.Contains(err.Error(), `"l"`) {
		t.Errorf("OpenLedger: %v, want an error that says newer version, and of which ledger", err)
	}
}
