package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

func TestFull(t *testing.T) {
	tests := []struct {
		name string
		opts queue.ProducerOptions
		fits int // records of 7 bytes
	}{
		{"entries", queue.ProducerOptions{MaxEntries: 5}, 5},
		{"bytes", queue.ProducerOptions{MaxBytes: 5*7 + 3}, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newStore(t).ledger(nil)
			tt.opts.Duplicates = time.Hour
			p := producer(t, l, &tt.opts)
			if err := p.Append(t.Context(), records(0, tt.fits-1)...); err != nil {
				t.Fatal(err)
			}
			if err := p.Append(t.Context(), record(8), record(9)); !errors.Is(err, queue.ErrFull) {
				t.Errorf("Append beyond the bound: %v, want ErrFull", err)
			}
			if l.Len() != uint64(tt.fits-1) || p.Seen(record(8).ID) {
				t.Error("something of a refused call was stored or noted")
			}
			if err := p.Append(t.Context(), record(8), record(8), record(0)); err != nil {
				t.Errorf("Append of one new record and duplicates: %v", err)
			}
			if err := p.Append(t.Context(), record(0), record(8)); err != nil {
				t.Errorf("Append of duplicates at the bound: %v", err)
			}
			if err := p.Append(t.Context(), record(9)); !errors.Is(err, queue.ErrFull) {
				t.Errorf("Append at the bound: %v, want ErrFull", err)
			}
			if err := l.DeleteTo(2); err != nil {
				t.Fatal(err)
			}
			if err := p.Append(t.Context(), record(9)); err != nil {
				t.Errorf("Append after a deletion: %v", err)
			}
		})
	}
}

// Everybody appends at a full ledger; exactly what fits gets in.
func TestFullUnderLoad(t *testing.T) {
	l := newStore(t).ledger(nil)
	p := producer(t, l, &queue.ProducerOptions{MaxEntries: 100, GroupEntries: 7})
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := 0
	for range 16 {
		wg.Go(func() {
			for range 20 {
				err := p.Append(t.Context(), record(1))
				if err != nil && !errors.Is(err, queue.ErrFull) {
					t.Error(err)
				}
				if err == nil {
					mu.Lock()
					stored++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if stored != 100 || l.Len() != 100 {
		t.Errorf("%d appends succeeded and %d entries are there, want 100", stored, l.Len())
	}
}

func TestDiscardOldest(t *testing.T) {
	for _, rowBytes := range []int{1, 20, 1000} {
		t.Run(fmt.Sprintf("row bytes %d", rowBytes), func(t *testing.T) {
			s := newStore(t)
			l := s.ledger(&queue.LedgerOptions{RowBytes: rowBytes, TailBytes: 1})
			mustAppend(t, l, records(0, 50)...)
			var told []string
			p := producer(t, l, &queue.ProducerOptions{
				MaxEntries: 10, MaxBytes: 75, DiscardOldest: true, Duplicates: time.Hour,
				Discarding: func(from, to uint64) {
					for seq := from; seq < to; {
						entries, err := l.Read(seq, int(to-seq), 0)
						if err != nil || entries[0].Seq != seq {
							t.Errorf("Read(%d) while [%d, %d) are discarded: %v, %v", seq, from, to, entries, err)
							return
						}
						for _, e := range entries {
							told = append(told, string(e.Data))
						}
						seq += uint64(len(entries))
					}
				},
			})
			for i := 50; i < 400; i++ {
				rs := records(i, i+1)
				if i%3 == 0 {
					rs = append(rs, record(i-1)) // a duplicate makes nobody go
				}
				if err := p.Append(t.Context(), rs...); err != nil {
					t.Fatal(err)
				}
				if l.Len() > 10 || l.Bytes() > 75 {
					t.Fatalf("%d entries of %d bytes", l.Len(), l.Bytes())
				}
			}
			data := readAll(t, l)
			all := append(slices.Clone(told), data...)
			var want []string
			for _, r := range records(0, 400) {
				want = append(want, string(r.Data))
			}
			if diff := cmp.Diff(want, all); diff != "" {
				t.Errorf("discarded and kept (-want +got):\n%s", diff)
			}
			if len(data) != 8 { // of 9 bytes each
				t.Errorf("%d entries are kept, want 8", len(data))
			}
			if err := p.Append(t.Context(), records(500, 511)...); !errors.Is(err, queue.ErrFull) {
				t.Errorf("Append of more than the bound: %v, want ErrFull", err)
			}
			s.reopen()
			l = s.ledger(nil)
			if diff := cmp.Diff(data, readAll(t, l)); diff != "" || l.Bytes() != 72 {
				t.Errorf("after a restart: %d bytes (-want +got):\n%s", l.Bytes(), diff)
			}
		})
	}
}

// A call that no batch of the database can hold is an error, and the producer
// lives on.
func TestACallBeyondEveryBatchIsRefused(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	p := queue.NewProducer(l, nil)
	large := make([]queue.Record, 65)
	data := make([]byte, 64<<20)
	for i := range large {
		large[i].Data = data
	}
	if err := p.Append(t.Context(), large...); err == nil || errors.Is(err, queue.ErrUnknown) {
		t.Errorf("Append of 4 GiB: %v, want an error that says that nothing is stored", err)
	}
	if err := p.Append(t.Context(), record(1)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"entry 1"}, readAll(t, l)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
