//go:build soak

package jetstream_test

import "time"

// How long the tests of trouble go on.
const (
	killEvents    = 100_000
	killRounds    = 300
	killPatience  = 3 * time.Minute
	outageRounds  = 12
	restartRounds = 50
)
