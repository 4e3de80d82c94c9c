package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// Whatever deletes the oldest entries -- bounds, or DeleteTo -- and however often
// the ledger is opened anew, what is left is what a slice would have left.
func TestDiscardingIsCuttingASlice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStore(t)
		lopts := &queue.LedgerOptions{
			RowBytes:  rapid.IntRange(1, 60).Draw(rt, "row bytes"),
			TailBytes: rapid.IntRange(1, 2000).Draw(rt, "tail bytes"),
		}
		popts := &queue.ProducerOptions{
			MaxEntries:    rapid.Uint64Range(0, 40).Draw(rt, "max entries"),
			MaxBytes:      rapid.Uint64Range(400, 800).Draw(rt, "max bytes"),
			DiscardOldest: true,
			Duplicates:    time.Hour,
		}
		l := s.ledger(lopts)
		p := queue.NewProducer(l, popts)
		var model []string
		next := 1
		seen := map[int]bool{}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				if first := l.First(); first != uint64(next-len(model)) || l.Next() != uint64(next) {
					rt.Fatalf("the ledger is [%d, %d), want [%d, %d)", first, l.Next(), next-len(model), next)
				}
				if diff := cmp.Diff(model, readAll(t, l)); diff != "" {
					rt.Fatalf("(-want +got):\n%s", diff)
				}
				size := 0
				for _, d := range model {
					size += len(d)
				}
				if l.Bytes() != uint64(size) {
					rt.Fatalf("Bytes: %d, want %d", l.Bytes(), size)
				}
			},
			"append": func(rt *rapid.T) {
				var rs []queue.Record
				fresh, most := 0, 30
				if popts.MaxEntries > 0 {
					most = min(most, int(popts.MaxEntries))
				}
				for _, n := range rapid.SliceOfN(rapid.IntRange(0, 2000), 1, most).Draw(rt, "numbers") {
					rs = append(rs, record(n))
					if !seen[n] {
						seen[n] = true
						d := fmt.Sprintf("entry %d", n)
						model = append(model, d)
						fresh++
					}
				}
				if err := p.Append(t.Context(), rs...); err != nil {
					rt.Fatal(err)
				}
				next += fresh
				total := 0
				for _, d := range model {
					total += len(d)
				}
				for fresh > 0 && (popts.MaxEntries > 0 && uint64(len(model)) > popts.MaxEntries || uint64(total) > popts.MaxBytes) {
					total -= len(model[0])
					model = model[1:]
				}
			},
			"delete": func(rt *rapid.T) {
				n := rapid.IntRange(0, len(model)).Draw(rt, "entries")
				if err := l.DeleteTo(l.First() + uint64(n)); err != nil {
					rt.Fatal(err)
				}
				model = model[n:]
				if len(model) == 0 {
					model = nil
				}
			},
			"reopen": func(*rapid.T) {
				p.Close()
				s.reopen()
				l = s.ledger(lopts)
				p = queue.NewProducer(l, popts)
			},
		})
		p.Close()
		s.close()
	})
}

// TestDiscardedCanBeRead lets calls queue up that are together beyond the bounds:
// who is told of what is discarded can read all of it.
func TestDiscardedCanBeRead(t *testing.T) {
	for name, opts := range map[string]queue.ProducerOptions{"entries": {MaxEntries: 3}, "bytes": {MaxBytes: 24}} {
		t.Run(name, func(t *testing.T) {
			fs, s := newSlowStore(t)
			l := s.ledger(nil)
			var discarded uint64
			opts.DiscardOldest = true
			opts.Discarding = func(from, to uint64) {
				es, err := l.Read(from, int(to-from), 0)
				if err != nil || uint64(len(es)) != to-from {
					t.Errorf("of the entries from %d to %d, %d can be read: %v", from, to, len(es), err)
				}
				discarded += to - from
			}
			p := queue.NewProducer(l, &opts)
			fs.block()
			done := make(chan error, 4)
			for i := range 4 {
				if err := p.AppendFunc(t.Context(), func(err error) { done <- err }, record(2*i), record(2*i+1)); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					<-fs.blocked // the others wait for each other
				}
			}
			fs.release()
			for range 4 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			p.Close()
			if first := l.First(); first != 1+discarded {
				t.Errorf("%d entries were said to be discarded, want %d", discarded, first-1)
			}
		})
	}
}

// TestDiscardingBesideDuplicates lets a call wait for the disk that is within the
// bounds without its duplicates, behind one that is not full: who is told of what
// is discarded can read all of it.
func TestDiscardingBesideDuplicates(t *testing.T) {
	for name, opts := range map[string]queue.ProducerOptions{"entries": {MaxEntries: 4}, "bytes": {MaxBytes: 28}} {
		t.Run(name, func(t *testing.T) {
			fs, s := newSlowStore(t)
			l := s.ledger(nil)
			var discarded uint64
			opts.DiscardOldest = true
			opts.Duplicates = time.Hour
			opts.Discarding = func(from, to uint64) {
				es, err := l.Read(from, int(to-from), 0)
				if err != nil || uint64(len(es)) != to-from {
					t.Errorf("of the entries from %d to %d, %d can be read: %v", from, to, len(es), err)
				}
				discarded += to - from
			}
			p := queue.NewProducer(l, &opts)
			if err := p.Append(t.Context(), records(1, 4)...); err != nil {
				t.Fatal(err)
			}
			fs.block()
			calls := [][]queue.Record{records(4, 5), records(5, 8), append(records(1, 4), records(8, 11)...)}
			done := make(chan error, len(calls))
			for i, c := range calls {
				if err := p.AppendFunc(t.Context(), func(err error) { done <- err }, c...); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					<-fs.blocked // the others wait for each other
				}
			}
			fs.release()
			for range calls {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			p.Close()
			if first := l.First(); first != 1+discarded || l.Next() != 11 {
				t.Errorf("the ledger is [%d, %d) and %d entries were said to be discarded, want [%d, 11)", first, l.Next(), discarded, 1+discarded)
			}
		})
	}
}
