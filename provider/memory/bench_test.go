package memory_test

import (
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
		time.Sleep(5 * time.Second) // all have left the window then
		at := time.Now()
		want(b, broker.Publish(b.Context(), next()))
		b.ReportMetric(float64(time.Since(at).Microseconds()), "µs/first-after")
		runtime.KeepAlive(broker)
	}
}

// BenchmarkPublishBeside publishes while subscriptions to other types wait, whose
// number must not matter.
func BenchmarkPublishBeside(b *testing.B) {
	for _, subscriptions := range []int{1, 1000} {
		b.Run(fmt.Sprintf("subscriptions=%d", subscriptions), func(b *testing.B) {
			broker := memory.New(&memory.Options{MaxEvents: 1 << 16, DiscardOldest: true, Duplicates: 10 * time.Millisecond})
			for i := range subscriptions {
				sub := messaging.Subscription{Name: strconv.Itoa(i), Types: []string{fmt.Sprintf("other%d.*", i)}}
				src, err := broker.Subscribe(b.Context(), sub, nil)
				want(b, err)
				go func() { _, _ = src.Receive(b.Context()) }()
			}
			for range 2 * subscriptions {
				runtime.Gosched()
			}
			next := payload(b)
			b.ReportAllocs()
			for b.Loop() {
				want(b, broker.Publish(b.Context(), next()))
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
