package reactor

import (
	"math/rand/v2"
	"time"
)

// Exponential returns a backoff for [Options]: base after the first failed
// attempt and twice as long after each further one, limit at most, each delay
// drawn from the upper half [RUN-7]. It saturates: no attempt yields a
// negative or a shorter delay than the one before it could be. A base that is
// not positive counts as a nanosecond, a limit below base as base.
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
