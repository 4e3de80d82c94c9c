//go:build unix

package ledger_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
	"github.com/catchment-events/catchment/reactor"
)

// payload is an event of 256 bytes of data with an id of its own.
func payload(b testing.TB, id int) event.Event {
	e, err := event.New("/bench", "bench.event", payloadData)
	want(b, err)
	e.SetID(strconv.Itoa(id))
	return e
}

var payloadData = make([]byte, 256)

// rolling makes room for as many events as a benchmark publishes.
var rolling = ledger.Options{MaxEvents: 1 << 30, MaxBytes: 1 << 40, Duplicates: time.Second}

func openBench(b *testing.B, opts ledger.Options) *ledger.Broker {
	broker, err := ledger.Open(b.TempDir(), &opts)
	want(b, err)
	b.Cleanup(func() { want(b, broker.Close()) })
	return broker
}

// BenchmarkReact takes events of 256 bytes from Publish, synced, to a handler
// and its ack, while publishers share syncs.
func BenchmarkReact(b *testing.B) {
	for _, concurrency := range []int{1, 64} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			react(b, func(ctx context.Context, broker *ledger.Broker, handled func(int)) error {
				return messaging.React(ctx, broker, messaging.Subscription{Name: "s", MaxInFlight: 8192}, func(context.Context, event.Event) error {
					handled(1)
					return nil
				}, &messaging.Options{Concurrency: concurrency})
			})
		})
	}
	b.Run("batch=64", func(b *testing.B) {
		react(b, func(ctx context.Context, broker *ledger.Broker, handled func(int)) error {
			src, err := broker.Subscribe(ctx, messaging.Subscription{Name: "s", MaxInFlight: 8192}, nil)
			if err != nil {
				return err
			}
			return reactor.RunBatch(ctx, src, func(_ context.Context, batch []*messaging.Delivery) error {
				handled(len(batch))
				return nil
			}, &messaging.Options{BatchSize: 64})
		})
	})
}

// react publishes from 16 goroutines, 64 events at a time.
func react(b *testing.B, run func(ctx context.Context, broker *ledger.Broker, handled func(int)) error) {
	const publishers, batch = 16, 64
	broker := openBench(b, rolling)
	ctx, stop := context.WithCancel(b.Context())
	var left atomic.Int64
	left.Store(int64(b.N))
	all, ended := make(chan struct{}), make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	worked := cpu()
	go func() {
		ended <- run(ctx, broker, func(n int) {
			if left.Add(int64(-n)) == 0 {
				close(all)
			}
		})
	}()
	var next atomic.Int64
	var work sync.WaitGroup
	for range publishers {
		events := make([]event.Event, batch)
		for i := range events {
			events[i] = payload(b, i)
		}
		work.Go(func() {
			for { // the same events with new ids: a million ready-made ones are a heap that no service has
				from := int(next.Add(batch)) - batch
				if from >= b.N {
					return
				}
				n := min(batch, b.N-from)
				for i := range n {
					events[i].SetID(strconv.Itoa(from + i))
				}
				if err := broker.Publish(ctx, events[:n]...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	work.Wait()
	<-all
	b.StopTimer()
	b.ReportMetric(float64(cpu()-worked)/float64(b.N), "cpu-ns/event")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	stop()
	want(b, <-ended)
}

// BenchmarkCold consumes a log of a million events of 256 bytes, which another
// process has left, with an ack for each.
func BenchmarkCold(b *testing.B) {
	const events = 1_000_000
	dir := b.TempDir()
	broker, err := ledger.Open(dir, &rolling)
	want(b, err)
	for i := 0; i < events; i += 1000 {
		batch := make([]event.Event, 1000)
		for j := range batch {
			batch[j] = payload(b, i+j)
		}
		want(b, broker.Publish(b.Context(), batch...))
	}
	want(b, broker.Close())
	for _, concurrency := range []int{1, 2, 64} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			b.ReportAllocs()
			peak, worked := uint64(0), time.Duration(0)
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				broker, err := ledger.Open(dir, &rolling)
				want(b, err)
				src, err := broker.Subscribe(b.Context(), messaging.Subscription{Name: fmt.Sprintf("s-%d-%d", concurrency, n)}, nil)
				want(b, err)
				at := cpu()
				b.StartTimer()
				var left atomic.Int64
				left.Store(events)
				var work sync.WaitGroup
				for range concurrency {
					work.Go(func() {
						for left.Add(-1) >= 0 {
							d, err := src.Receive(b.Context())
							if err == nil {
								err = d.Ack(b.Context())
							}
							if err != nil {
								b.Error(err)
							}
						}
					})
				}
				work.Wait()
				b.StopTimer()
				worked += cpu() - at
				peak = max(peak, heap())
				want(b, broker.Close())
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N)*events/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(worked)/float64(b.N)/events, "cpu-ns/event")
			b.ReportMetric(float64(peak)/1e6, "MB-heap")
		})
	}
}

// cpu returns the time that the processors have worked for this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkPublishIdle publishes beside subscriptions whose members do not
// receive, 64 callers at a time: their number must not matter.
func BenchmarkPublishIdle(b *testing.B) {
	for _, subs := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("subscriptions=%d", subs), func(b *testing.B) {
			broker := openBench(b, rolling)
			for i := range subs {
				_, err := broker.Subscribe(b.Context(), messaging.Subscription{Name: fmt.Sprint("s", i)}, nil)
				want(b, err)
			}
			publishAll(b, broker, 0)
		})
	}
}

// BenchmarkPublishLength publishes to logs of different lengths.
func BenchmarkPublishLength(b *testing.B) {
	for _, length := range []int{0, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("events=%d", length), func(b *testing.B) {
			broker := openBench(b, rolling)
			for i := 0; i < length; i += 1000 {
				batch := make([]event.Event, 1000)
				for j := range batch {
					batch[j] = payload(b, i+j)
				}
				want(b, broker.Publish(b.Context(), batch...))
			}
			publishAll(b, broker, length)
		})
	}
}

// publishAll publishes b.N events, 64 callers at a time.
func publishAll(b *testing.B, broker *ledger.Broker, first int) {
	b.ReportAllocs()
	b.ResetTimer()
	worked := cpu()
	var next atomic.Int64
	var work sync.WaitGroup
	for range 64 {
		e := payload(b, 0)
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < b.N; i = int(next.Add(1)) - 1 {
				e.SetID(strconv.Itoa(first + i))
				if err := broker.Publish(context.Background(), e); err != nil {
					b.Error(err)
				}
			}
		})
	}
	work.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpu()-worked)/float64(b.N), "cpu-ns/event")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkPublishAlone is one caller that waits for each event, beside one that
// appends as many bytes to a file and syncs it.
func BenchmarkPublishAlone(b *testing.B) {
	b.Run("ledger", func(b *testing.B) {
		broker := openBench(b, rolling)
		n := 0
		for b.Loop() {
			n++
			want(b, broker.Publish(context.Background(), payload(b, n)))
		}
	})
	b.Run("file", func(b *testing.B) {
		f, err := vfs.Default.Create(b.TempDir()+"/file", vfs.WriteCategoryUnspecified)
		want(b, err)
		defer f.Close()
		data := make([]byte, 400)
		for b.Loop() {
			_, err := f.Write(data)
			want(b, err)
			want(b, f.SyncData())
		}
	})
}
