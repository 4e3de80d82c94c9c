//go:build !soak

package jetstream_test

import "time"

// How long the tests of trouble go on; with -tags soak, longer.
const (
	killEvents    = 5_000
	killRounds    = 12
	killPatience  = 20 * time.Second
	outageRounds  = 1
	restartRounds = 3
)
