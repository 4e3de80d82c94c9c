package queue_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

var long = flag.Int("entries", 200_000, "length of a long ledger in benchmarks; 10000000 is meant")

// fill appends entries to a ledger without waiting for the disk.
func fill(b *testing.B, db *pebble.DB, n int) {
	l, err := queue.OpenLedger(db, []byte("l"), &queue.LedgerOptions{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 64*benchSize)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(data)
	rs := make([]queue.Record, 1000)
	for l.Len() < uint64(n) {
		for i := range rs {
			rs[i].Data = data[i%64*benchSize:][:benchSize]
		}
		if _, err := l.Append(rs...); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		b.Fatal(err)
	}
	for db.Metrics().Compact.NumInProgress > 0 { // merges of what was filled in are its cost
		time.Sleep(10 * time.Millisecond)
	}
}

// BenchmarkLength compares appends to a ledger of 10,000 entries with such to a
// long one: the ratio should be 1.
func BenchmarkLength(b *testing.B) {
	data := make([]byte, benchSize)
	open := func(n int) func() time.Duration {
		db := benchDB(b, b.TempDir())
		// Both have a past: Pebble's first log files cost more than those that
		// it uses again.
		fill(b, db, max(n, 1_000_000))
		l := benchLedger(b, db)
		if err := l.DeleteTo(l.Next() - uint64(n)); err != nil {
			b.Fatal(err)
		}
		p := queue.NewProducer(l, nil)
		b.Cleanup(func() { p.Close() })
		rs := make([]queue.Record, 64)
		for i := range rs {
			rs[i].Data = data
		}
		return func() time.Duration {
			start := time.Now()
			for range 20 {
				if err := p.Append(context.Background(), rs...); err != nil {
					b.Fatal(err)
				}
			}
			return time.Since(start)
		}
	}
	short, long := open(10_000), open(*long)
	compare(b, 20*64, short, long)
}

// BenchmarkOpen opens a long ledger.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	db, err := pebble.Open(dir, &pebble.Options{MemTableSize: 64 << 20, Logger: quietLogger{}})
	if err != nil {
		b.Fatal(err)
	}
	fill(b, db, *long)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	var ledger time.Duration
	n := 0
	for b.Loop() {
		db, err := pebble.Open(dir, &pebble.Options{MemTableSize: 64 << 20, Logger: quietLogger{}})
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		l, err := queue.OpenLedger(db, []byte("l"), nil)
		if err != nil || l.Len() < uint64(*long) {
			b.Fatal(l.Len(), err)
		}
		ledger += time.Since(start)
		n++
		b.StopTimer()
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(ledger.Nanoseconds())/float64(n), "ledger-ns/op")
}

// BenchmarkRead reads a long ledger from its first entry on, from the disk.
func BenchmarkRead(b *testing.B) {
	db := benchDB(b, b.TempDir())
	fill(b, db, *long)
	l := benchLedger(b, db)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for seq := l.First(); seq < l.Next(); {
			entries, err := l.Read(seq, 0, 256<<10)
			if err != nil {
				b.Fatal(err)
			}
			seq += uint64(len(entries))
			n += len(entries)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkConsume delivers and settles the entries of a long ledger.
func BenchmarkConsume(b *testing.B) {
	db := benchDB(b, b.TempDir())
	fill(b, db, *long)
	l := benchLedger(b, db)
	tb := queue.OpenTable(db, []byte("t"))
	n := 0
	name := "a"
	b.ReportAllocs()
	for b.Loop() {
		name += "a"
		c, err := queue.NewConsumer(l, tb, name, nil)
		if err != nil {
			b.Fatal(err)
		}
		for range *long {
			e, err := c.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if err := c.Settle(e.Seq); err != nil {
				b.Fatal(err)
			}
			n++
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
}
