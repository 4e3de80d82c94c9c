//go:build soak

package jetstream_test

import "time"

// How long TestKill goes on.
const (
	killEvents   = 100_000
	killRounds   = 300
	killPatience = 3 * time.Minute
)
