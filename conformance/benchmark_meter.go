package conformance

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// A meter adds up what measured parts of a benchmark took. It is used by one
// goroutine at a time; what it counts of the heap is the whole process's.
type meter struct {
	unit    string // what is counted: event, or delivery
	events  int
	took    time.Duration
	mallocs uint64
	bytes   uint64
	samples []time.Duration    // of latency
	extra   map[string]float64 // further figures, by unit
}

// measure runs f, which takes care of n events.
func (m *meter) measure(n int, f func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	f()
	m.took += time.Since(began)
	runtime.ReadMemStats(&after)
	m.events += n
	m.mallocs += after.Mallocs - before.Mallocs
	m.bytes += after.TotalAlloc - before.TotalAlloc
}

// note keeps a figure that is not of all events.
func (m *meter) note(unit string, value float64) {
	if m.extra == nil {
		m.extra = make(map[string]float64)
	}
	m.extra[unit] = value
}

// reset forgets what was measured.
func (m *meter) reset() { *m = meter{unit: m.unit} }

// report gives the figures to the benchmark.
func (m *meter) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for unit, value := range m.extra {
		b.ReportMetric(value, unit)
	}
	if len(m.samples) > 0 {
		slices.Sort(m.samples)
		b.ReportMetric(float64(quantile(m.samples, 0.5)), "p50-ns")
		b.ReportMetric(float64(quantile(m.samples, 0.99)), "p99-ns")
		b.ReportMetric(float64(quantile(m.samples, 0.999)), "p99.9-ns")
	}
	if m.events == 0 {
		return
	}
	n := float64(m.events)
	b.ReportMetric(float64(m.took.Nanoseconds())/n, "ns/"+m.unit)
	b.ReportMetric(n/m.took.Seconds(), m.plural()+"/s")
	b.ReportMetric(float64(m.mallocs)/n, "allocs/"+m.unit)
	b.ReportMetric(float64(m.bytes)/n, "B/"+m.unit)
}

func (m *meter) plural() string {
	if m.unit == "delivery" {
		return "deliveries"
	}
	return m.unit + "s"
}

// quantile returns the smallest of the sorted samples that a part q of them
// does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(q * float64(len(sorted)))
	return sorted[min(i, len(sorted)-1)]
}

// heap returns how much of the heap is in use.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held until now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
