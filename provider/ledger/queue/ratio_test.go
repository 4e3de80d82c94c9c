//go:build unix

package queue_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// BenchmarkRatio runs the same work on raw Pebble and on a producer by turns, a
// short while each, since the time of an fsync changes from minute to minute.
// It reports the median of how many times the raw rate the producer has; for a
// lone caller, of how many times an fsync of a file an append takes.
func BenchmarkRatio(b *testing.B) {
	data := make([]byte, benchSize)
	many := func(callers, n int, f func(n uint64)) time.Duration {
		var left atomic.Int64
		left.Store(int64(n))
		var wg sync.WaitGroup
		start := time.Now()
		for range callers {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					f(serial.Add(1))
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	for _, callers := range []int{64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			db, p := benchDB(b, b.TempDir()), benchProducer(b)
			n := callers * 40
			compare(b, n, func() time.Duration {
				return many(callers, n, func(n uint64) {
					var key [9]byte
					binary.BigEndian.PutUint64(key[1:], n)
					if err := db.Set(key[:], data, pebble.Sync); err != nil {
						b.Error(err)
					}
				})
			}, func() time.Duration {
				return many(callers, n, func(n uint64) {
					r := queue.Record{Data: data}
					binary.LittleEndian.PutUint64(r.ID[:], n)
					if err := p.Append(context.Background(), r); err != nil {
						b.Error(err)
					}
				})
			})
		})
	}
	b.Run("batch=1024", func(b *testing.B) {
		const size, n = 1024, 20
		db, p := benchDB(b, b.TempDir()), benchProducer(b)
		records := make([]queue.Record, size)
		compare(b, n*size, func() time.Duration {
			return many(1, n, func(uint64) {
				batch := db.NewBatch()
				defer batch.Close()
				for range size {
					var key [9]byte
					binary.BigEndian.PutUint64(key[1:], serial.Add(1))
					batch.Set(key[:], data, nil)
				}
				if err := batch.Commit(pebble.Sync); err != nil {
					b.Error(err)
				}
			})
		}, func() time.Duration {
			return many(1, n, func(uint64) {
				for i := range records {
					records[i].Data = data
					binary.LittleEndian.PutUint64(records[i].ID[:], serial.Add(1))
				}
				if err := p.Append(context.Background(), records...); err != nil {
					b.Error(err)
				}
			})
		})
	})
	b.Run("lone", func(b *testing.B) {
		const n = 20
		f, err := os.Create(filepath.Join(b.TempDir(), "file"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		p := benchProducer(b)
		compare(b, n, func() time.Duration {
			return many(1, n, func(uint64) {
				if _, err := f.Write(data); err != nil {
					b.Error(err)
				}
				if err := f.Sync(); err != nil {
					b.Error(err)
				}
			})
		}, func() time.Duration {
			return many(1, n, func(n uint64) {
				r := queue.Record{Data: data}
				binary.LittleEndian.PutUint64(r.ID[:], n)
				if err := p.Append(context.Background(), r); err != nil {
					b.Error(err)
				}
			})
		})
	})
}

var serial atomic.Uint64

func benchProducer(b *testing.B) *queue.Producer {
	p := queue.NewProducer(benchLedger(b, benchDB(b, b.TempDir())), &queue.ProducerOptions{Duplicates: 2 * time.Minute})
	b.Cleanup(func() { p.Close() })
	return p
}

// compare runs both by turns, b.N times, and reports the median of the ratios.
func compare(b *testing.B, entries int, raw, ours func() time.Duration) {
	raw()
	ours()
	var ratios []float64
	var rawTime, oursTime, rawCPU, oursCPU time.Duration
	measure := func(f func() time.Duration, cpu *time.Duration) time.Duration {
		before := cpuTime(b)
		d := f()
		*cpu += cpuTime(b) - before
		return d
	}
	b.ResetTimer()
	for i := range b.N {
		var r, o time.Duration
		if i%2 == 0 {
			r = measure(raw, &rawCPU)
			o = measure(ours, &oursCPU)
		} else {
			o = measure(ours, &oursCPU)
			r = measure(raw, &rawCPU)
		}
		rawTime, oursTime = rawTime+r, oursTime+o
		ratios = append(ratios, r.Seconds()/o.Seconds())
	}
	b.StopTimer()
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(float64(rawCPU.Nanoseconds())/float64(entries*b.N), "raw-cpu-ns/entry")
	b.ReportMetric(float64(oursCPU.Nanoseconds())/float64(entries*b.N), "cpu-ns/entry")
	b.ReportMetric(float64(entries*b.N)/rawTime.Seconds(), "raw-entries/s")
	b.ReportMetric(float64(entries*b.N)/oursTime.Seconds(), "entries/s")
}

// cpuTime returns how long the process has been running on a processor.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
