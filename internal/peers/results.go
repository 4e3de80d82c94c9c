package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// A group are systems that are compared with its first one.
type group struct {
	name, title string
	least       int // events of a measurement: enough for a system that polls to be awake
}

var groups = []group{
	{"memory", "In the process's memory", 20_000},
	{"jetstream", "On NATS JetStream, one server beside it", 2000},
	{"disk", "On the process's own disk, every publish synced", 500},
}

type key struct{ system, workload string }

// results are all samples.
type results struct {
	samples map[key][]sample
	failed  []error
	codec   map[key][]sample // by name of the codec, and encode or decode
	growth  []growth
}

func newResults() *results {
	return &results{samples: make(map[key][]sample), codec: make(map[key][]sample)}
}

func (r *results) add(s system, w workload, got sample) {
	k := key{s.name, w.name}
	r.samples[k] = append(r.samples[k], got)
}

// fail notes that a system could not do a workload, and forgets what it did of
// it before.
func (r *results) fail(ctx context.Context, s system, w workload, err error) {
	if ctx.Err() == nil { // or it was told to end
		r.failed = append(r.failed, fmt.Errorf("%s, %s: %w", s.name, w.name, err))
	}
	delete(r.samples, key{s.name, w.name})
}

// rate is the median of events a second; 0: not measured.
func (r *results) rate(system, workload string) float64 {
	return median(r.samples[key{system, workload}], sample.perSecond)
}

// ratio is how many times as fast a is as b: the median over the rounds, each of
// which measured the two within seconds of each other; 0: not measured.
func (r *results) ratio(a, b key) float64 { return r.compare(a, b, sample.perSecond) }

// cpuRatio is the same by the processor time of this process, which another one
// that is busy does not change much.
func (r *results) cpuRatio(a, b key) float64 { return r.compare(a, b, sample.perCPU) }

func (r *results) compare(a, b key, speed func(sample) float64) float64 {
	as, bs := r.samples[a], r.samples[b]
	var ratios []float64
	for i := range min(len(as), len(bs)) {
		ratios = append(ratios, div(speed(as[i]), speed(bs[i])))
	}
	return median(ratios, func(v float64) float64 { return v })
}

func (r *results) allocs(system, workload string) float64 {
	return median(r.samples[key{system, workload}], sample.allocs)
}

// wait is the median of a quantile of latency; 0: not measured.
func (r *results) wait(system string, q float64) time.Duration {
	return median(r.samples[key{system, latency}], func(s sample) time.Duration { return quantile(s.waits, q) })
}

// median is that of what f returns of each sample: of two in the middle the
// lower; zero if there is none.
func median[S any, T cmp.Ordered](samples []S, f func(S) T) T {
	var values []T
	for _, s := range samples {
		values = append(values, f(s))
	}
	if len(values) == 0 {
		var none T
		return none
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// quantile returns the first of the sorted values that a part q of them does not
// exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
