package main

import (
	"fmt"
	"strings"
	"time"
)

// A target is something that the project asks of itself.
type target struct {
	what     string
	asked    string
	measured float64
	unit     string
	cpu      float64 // the ratio by processor time; 0: none
	known    bool
	holds    bool
}

// targets compares what was measured with what was asked for.
func (r *results) targets() []target {
	var out []target
	add := func(what, asked, unit string, measured float64, known, holds bool) {
		out = append(out, target{what: what, asked: asked, measured: measured, unit: unit, known: known, holds: known && holds})
	}
	ratio := func(what, our, ours, their, theirs string, least float64) {
		v := r.ratio(key{our, ours}, key{their, theirs})
		add(what, fmt.Sprintf("≥ %.3g ×", least), "×", v, v > 0, v >= least)
		out[len(out)-1].cpu = r.cpuRatio(key{our, ours}, key{their, theirs})
	}
	most := func(what string, v, limit float64, unit string) {
		add(what, fmt.Sprintf("≤ %.4g%s", limit, unit), unit, v, v > 0, v <= limit)
	}
	const mem, js = "catchment memory", "catchment jetstream"

	ratio("memory: stream, against Watermill GoChannel in order", mem, streamOne, "Watermill GoChannel", streamOne, 5)
	ratio("memory: stream, against Go CDK mempubsub", mem, streamOne, "Go CDK mempubsub", streamOne, 8)
	most("memory: stream, allocations an event", r.allocs(mem, streamOne), 12, "")
	most("memory: latency p99", float64(r.wait(mem, 0.99))/float64(time.Microsecond), 100, " µs")
	ratio("jetstream: publish in batches, against raw PublishAsync", js, publishBatch, "raw nats.go", publishBatch, 0.9)
	ratio("jetstream: publish, one caller, against raw PublishMsg", js, publishOne, "raw nats.go", publishOne, 0.9)
	ratio("jetstream: consume, against raw Consume and Ack", js, consume, "raw nats.go", consume, 0.9)
	ratio("jetstream: consume, against the same with decoding", js, consume, "raw nats.go and our codec", consume, 0.9)
	ratio("jetstream: stream, against watermill-nats", js, streamBatch, "watermill-nats v2", streamBatch, 6)
	ratio("jetstream: stream, against watermill-nats, AckAsync", js, streamBatch, "watermill-nats v2, AckAsync", streamBatch, 6)
	ratio("jetstream: stream, against the CloudEvents SDK", js, streamBatch, "CloudEvents SDK v2", streamBatch, 6)
	const disk = "catchment ledger"
	ratio("ledger: publish, 64 callers, against raw Pebble", disk, publishMany, "raw Pebble", publishMany, 0.8)
	ratio("ledger: publish in batches, against raw Pebble", disk, publishBatch, "raw Pebble", publishBatch, 0.7)
	ratio("ledger: publish, 64 callers, against embedded JetStream", disk, publishMany, "embedded JetStream", publishMany, 20)
	ratio("ledger: publish in batches, against embedded JetStream", disk, publishBatch, "embedded JetStream", publishBatch, 20)
	for _, c := range []struct {
		what   string
		faster float64
		allocs float64
	}{{encode, 3.5, 8}, {decode, 2.5, 7}} {
		ours, theirs := r.perCall(ourCodec, c.what), r.perCall(sdkCodec, c.what)
		v := div(theirs, ours)
		add("codec: "+c.what+", against the CloudEvents SDK", fmt.Sprintf("≥ %.3g ×", c.faster), "×", v, v > 0, v >= c.faster)
		most("codec: "+c.what+", allocations", r.codecAllocs(ourCodec, c.what), c.allocs, "")
	}
	for _, g := range r.growth {
		if !strings.HasPrefix(g.system, "catchment") {
			continue
		}
		v := g.ratio()
		add(fmt.Sprintf("%s: cost of an event, %d %s against %d", g.system, g.large, g.of, g.small), "≤ 1.2 ×", "×", v, v > 0, v <= 1.2)
	}
	return out
}

// div is a/b, and 0 if there is no b.
func div(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
