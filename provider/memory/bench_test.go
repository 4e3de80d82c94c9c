package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// payload is an event of 256 bytes of data; each use gets an id of its own.
func payload(b *testing.B) func() event.Event {
	e, err := event.New("/bench", "bench.event", make([]byte, 256))
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	return func() event.Event {
		n++
		e.SetID(strconv.Itoa(n))
		return e
	}
}

// rolling makes room for as many events as a benchmark publishes.
var rolling = &memory.Options{MaxEvents: 1 << 16, DiscardOldest: true, Duplicates: 10 * time.Millisecond}

// BenchmarkPublishHandleAck takes events of 256 bytes from Publish to Ack, one
// by one and in batches of 100.
func BenchmarkPublishHandleAck(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			broker := memory.New(rolling)
			src, err := broker.Subscribe(b.Context(), messaging.Subscription{Name: "s"}, nil)
			want(b, err)
			next := payload(b)
			events := make([]event.Event, batch)
			b.ReportAllocs()
			for b.Loop() {
				for i := range events {
					events[i] = event.Clone(next())
				}
				want(b, broker.Publish(b.Context(), events...))
				for range events {
					d, err := src.Receive(b.Context())
					want(b, err)
					want(b, d.Ack(b.Context()))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/event")
		})
	}
}

// BenchmarkReact is the same through a reactor, with the publisher beside it.
func BenchmarkReact(b *testing.B) {
	for _, concurrency := range []int{1, 16} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			broker := memory.New(&memory.Options{MaxEvents: b.N + 1, Duplicates: 10 * time.Millisecond})
			next := payload(b)
			handled := make(chan struct{}, 1024) // bounds how far the publisher is ahead
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error)
			sub := messaging.Subscription{Name: "s"}
			go func() {
				done <- messaging.React(ctx, broker, sub, func(context.Context, event.Event) error {
					<-handled
					return nil
				}, &messaging.Options{Concurrency: concurrency})
			}()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				handled <- struct{}{}
				want(b, broker.Publish(b.Context(), next()))
			}
			for len(handled) > 0 {
				runtime.Gosched()
			}
			stop()
			want(b, <-done)
		})
	}
}

// BenchmarkDuplicates is what the deduplication window costs when it holds a
// million ids: bytes for each, and the longest Publish, which is the first
// after they have all left the window at once.
func BenchmarkDuplicates(b *testing.B) {
	const ids = 1_000_000
	for range b.N {
		broker := memory.New(&memory.Options{MaxEvents: 1, DiscardOldest: true, Duplicates: 5 * time.Second})
		next := payload(b)
		before := heap()
		began := time.Now()
		longest := time.Duration(0)
		for range ids {
			at := time.Now()
			want(b, broker.Publish(b.Context(), next()))
			longest = max(longest, time.Since(at))
		}
		b.ReportMetric(float64(time.Since(began).Nanoseconds())/ids, "ns/publish")
		b.ReportMetric(float64(heap()-before)/ids, "B/id")
		b.ReportMetric(float64(longest.Microseconds()), "µs/longest")
		time.Sleep(5 * time.Second)
		at := time.Now()
		want(b, broker.Publish(b.Context(), next()))
		b.ReportMetric(float64(time.Since(at).Microseconds()), "µs/first-after")
		runtime.KeepAlive(broker)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
