package reactor_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// TestExponential holds the backoff to the bounds of each attempt: the upper
// half of base·2^(attempt-1), limit at most [RUN-7].
func TestExponential(t *testing.T) {
	const base, limit = 100 * time.Millisecond, time.Minute
	tests := []struct {
		attempt int
		want    time.Duration // the longest; the shortest is half of it
	}{
		{math.MinInt, base}, {-1, base}, {0, base}, {1, base},
		{2, 2 * base}, {3, 4 * base}, {9, 256 * base}, {10, 512 * base},
		{11, limit}, {12, limit}, {64, limit}, {310, limit}, {1000, limit}, {math.MaxInt, limit},
	}
	backoff := reactor.Exponential(base, limit)
	for _, test := range tests {
		t.Run(fmt.Sprint(test.attempt), func(t *testing.T) {
			least, most := time.Duration(math.MaxInt64), time.Duration(0)
			for range 2000 {
				d := backoff(test.attempt)
				least, most = min(least, d), max(most, d)
			}
			half := test.want / 2
			if least < half || most > test.want {
				t.Errorf("from %v to %v, want within %v and %v", least, most, half, test.want)
			}
			if slack := half / 20; least > half+slack || most < test.want-slack {
				t.Errorf("from %v to %v, want spread over %v to %v", least, most, half, test.want)
			}
		})
	}
}

// TestExponentialExtremes holds the backoff to positive delays within its
// limit, whatever base and limit are [RUN-7].
func TestExponentialExtremes(t *testing.T) {
	durations := []time.Duration{math.MinInt64, -1, 0, 1, 2, 3, time.Second, math.MaxInt64/2 + 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, base := range durations {
		for _, limit := range durations {
			backoff := reactor.Exponential(base, limit)
			most := max(base, limit, 1)
			for _, attempt := range []int{-1, 0, 1, 2, 62, 63, 64, 65, 310, 1000, math.MaxInt} {
				if d := backoff(attempt); d <= 0 || d > most {
					t.Errorf("Exponential(%d, %d)(%d) = %d, want positive and %d at most", base, limit, attempt, d, most)
				}
			}
		}
	}
}
