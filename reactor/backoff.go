package reactor

import (
	"math/rand/v2"
	"time"
)

// Exponential returns a backoff for [Options]: base after the first attempt
// and twice as long after each further one, up to limit, without overflow, each
// delay drawn from the upper half [RUN-7].
func Exponential(base, limit time.Duration) func(attempt int) time.Duration {
	base = max(base, 1)
	limit = max(limit, base)
	return func(attempt int) time.Duration {
		d := base
		for n := 1; n < attempt && d < limit; n++ {
			if d > limit/2 {
				d = limit
			} else {
				d *= 2
			}
		}
		return d - rand.N(d/2+1)
	}
}

// defaultBackoff is the backoff of [Options] that name none: exponential from
// 100 ms, capped at one minute [RUN-7].
var defaultBackoff = Exponential(100*time.Millisecond, time.Minute)
