package queue_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

const benchSize = 256 // bytes of an entry

type quietLogger struct{}

func (quietLogger) Infof(string, ...any)      {}
func (quietLogger) Errorf(string, ...any)     {}
func (quietLogger) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func benchDB(b testing.TB, dir string) *pebble.DB {
	db, err := pebble.Open(dir, &pebble.Options{MemTableSize: 64 << 20, Logger: quietLogger{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

func benchLedger(b testing.TB, db *pebble.DB) *queue.Ledger {
	l, err := queue.OpenLedger(db, []byte("l"), nil)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// share runs f by many callers, b.N times in all.
func share(b *testing.B, callers int, f func(n uint64)) {
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				f(uint64(i))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkAppend has many callers append one entry at a time, each waiting
// until it is on the disk; raw is the same number of committers that set one key
// of Pebble each and wait as long.
func BenchmarkAppend(b *testing.B) {
	data := make([]byte, benchSize)
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d/raw", callers), func(b *testing.B) {
			db := benchDB(b, b.TempDir())
			share(b, callers, func(n uint64) {
				var key [9]byte
				binary.BigEndian.PutUint64(key[1:], n)
				if err := db.Set(key[:], data, pebble.Sync); err != nil {
					b.Error(err)
				}
			})
		})
		for _, dup := range []time.Duration{0, 2 * time.Minute} {
			name := "producer"
			if dup > 0 {
				name = "dedup"
			}
			b.Run(fmt.Sprintf("callers=%d/%s", callers, name), func(b *testing.B) {
				p := queue.NewProducer(benchLedger(b, benchDB(b, b.TempDir())), &queue.ProducerOptions{Duplicates: dup})
				defer p.Close()
				share(b, callers, func(n uint64) {
					r := queue.Record{Data: data}
					binary.LittleEndian.PutUint64(r.ID[:], n)
					if err := p.Append(context.Background(), r); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
	b.Run("callers=1/fsync", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "file"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		share(b, 1, func(uint64) {
			if _, err := f.Write(data); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		})
	})
}

// BenchmarkAppendBatch has one caller append many entries in each call.
func BenchmarkAppendBatch(b *testing.B) {
	const size = 1024
	data := make([]byte, benchSize)
	report := func(b *testing.B) {
		b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "entries/s")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/entry")
	}
	b.Run("raw", func(b *testing.B) {
		db := benchDB(b, b.TempDir())
		b.ReportAllocs()
		n := uint64(0)
		for b.Loop() {
			batch := db.NewBatch()
			for range size {
				var key [9]byte
				n++
				binary.BigEndian.PutUint64(key[1:], n)
				batch.Set(key[:], data, nil)
			}
			if err := batch.Commit(pebble.Sync); err != nil {
				b.Fatal(err)
			}
			batch.Close()
		}
		report(b)
	})
	for _, dup := range []time.Duration{0, 2 * time.Minute} {
		name := "producer"
		if dup > 0 {
			name = "dedup"
		}
		b.Run(name, func(b *testing.B) {
			p := queue.NewProducer(benchLedger(b, benchDB(b, b.TempDir())), &queue.ProducerOptions{Duplicates: dup})
			defer p.Close()
			records := make([]queue.Record, size)
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				for i := range records {
					n++
					records[i].Data = data
					binary.LittleEndian.PutUint64(records[i].ID[:], n)
				}
				if err := p.Append(b.Context(), records...); err != nil {
					b.Fatal(err)
				}
			}
			report(b)
		})
	}
}
