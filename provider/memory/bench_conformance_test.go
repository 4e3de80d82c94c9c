package memory_test

import (
	"testing"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/provider/memory"
)

func BenchmarkConformance(b *testing.B) {
	conformance.Benchmark(b, conformance.Harness{
		Open: func(*testing.T) conformance.Broker { return memory.New(nil) },
	})
}
