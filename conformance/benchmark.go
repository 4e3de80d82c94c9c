package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Benchmark measures how fast a provider's broker is, with the same workloads
// for every provider. It is the speed half of the suite, and needs only
// Harness.Open:
//
//	func BenchmarkConformance(b *testing.B) {
//		conformance.Benchmark(b, harness)
//	}
//
// Events have JSON data of 256 bytes, or of 4 KiB where the name says so, six
// attributes and three extensions. The sub-benchmarks are
//
//	publish      by one caller, by 64 at once, in batches of 1, 100 and 1000
//	stream       a publisher and a member at once, from Publish to Ack: by
//	             Receive and Ack, by React, and with batches of 100
//	consume      of events stored before, by 1 and by 4 members
//	latency      from the start of Publish to the handler, one event at a time
//	fanout       one event to 1, 10, 100 and 1000 subscriptions; per delivery
//	filter       consume with Types: one, 64, and one event in a hundred
//	redelivery   consume where every tenth event fails once
//	growth       publish, and consume, at the end of a log of 10^4, 10^5 and
//	             10^6 events; publish beside 1 to 1000 subscriptions without
//	             a member
//	pending      bytes of this process's heap for each event that is stored and
//	             not received, and that is received and not settled
//
// They report ns/event, events/s, allocs/event and B/event, of the part that is
// measured, and of this process; ns/op would be that of a round with all that
// prepares it, and is left out. A round has a broker of its own, and is as large
// as is needed to take 100 ms, within what every broker's default bounds hold.
//
// A sub-benchmark takes -benchtime and a round or two more, and fails after five
// minutes. With -short, rounds are small, and the log of 10^6 events is left
// out; it is skipped as well when the broker cannot store it within a minute.
// The bytes of a broker whose server runs in this process are with the server's.
func Benchmark(b *testing.B, h Harness) {
	b.Helper()
	if h.Open == nil {
		b.Fatal("conformance: Harness: the field Open is nil")
	}
	h = h.withDefaults()
	for _, size := range dataSizes {
		b.Run("publish/"+size.name, func(b *testing.B) { benchmarkPublish(b, h, size.bytes) })
		b.Run("stream/"+size.name, func(b *testing.B) { benchmarkStream(b, h, size.bytes) })
		b.Run("consume/"+size.name, func(b *testing.B) { benchmarkConsume(b, h, size.bytes) })
		b.Run("latency/"+size.name, func(b *testing.B) { benchmarkLatency(b, h, size.bytes) })
		b.Run("pending/"+size.name, func(b *testing.B) { benchmarkPending(b, h, size.bytes) })
	}
	b.Run("fanout", func(b *testing.B) { benchmarkFanout(b, h) })
	b.Run("filter", func(b *testing.B) { benchmarkFilter(b, h) })
	b.Run("redelivery", func(b *testing.B) { benchmarkRedelivery(b, h) })
	b.Run("growth", func(b *testing.B) { benchmarkGrowth(b, h) })
}

// A size is how much data an event has, and how many events of it a round may
// store: within any broker's default bounds, and in a second or so.
type dataSize struct {
	name  string
	bytes int
	most  int
}

const (
	smallData = 256
	largeData = 4 << 10
)

var dataSizes = []dataSize{{"256B", smallData, 1 << 16}, {"4KiB", largeData, 1 << 14}}

// mostEvents is how many events with so much data a round may have.
func mostEvents(bytes int) int {
	if bytes > smallData {
		return dataSizes[1].most
	}
	return dataSizes[0].most
}

// speedLimit is when a sub-benchmark is given up.
const speedLimit = 5 * time.Minute

// A speed is one sub-benchmark while it runs. Its methods are for the
// benchmark's goroutine.
type speed struct {
	*meter
	b    *testing.B
	h    Harness
	ctx  context.Context // ends with the benchmark, or when it takes too long
	feed *feed
}

// measured runs a sub-benchmark and reports what its meter has counted.
func measured(b *testing.B, h Harness, name string, bytes int, run func(s *speed)) {
	b.Run(name, func(b *testing.B) {
		ctx, cancel := context.WithTimeout(b.Context(), speedLimit)
		defer cancel()
		s := &speed{meter: &meter{unit: "event"}, b: b, h: h, ctx: ctx, feed: newFeed(bytes)}
		run(s)
		s.report(b)
	})
}

// rounds runs rounds until the benchmark has had its time, each on a broker of
// its own, with n events. Before that it makes n four times as large, and again,
// while a round measures less than 100 ms, as far as most allows. That cannot be
// done on the way: b.Loop takes its first rounds for all of them.
func (s *speed) rounds(n, most int, round func(broker Broker, n int)) {
	one := func() {
		broker, done := s.open()
		round(broker, n)
		done()
	}
	for 4*n <= most && !testing.Short() {
		s.reset()
		if one(); s.took >= 100*time.Millisecond {
			break
		}
		n *= 4
	}
	s.reset()
	for s.b.Loop() {
		one()
	}
}

// ok ends the benchmark if err is not nil.
func (s *speed) ok(err error, format string, args ...any) {
	s.b.Helper()
	if err != nil {
		s.b.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}
