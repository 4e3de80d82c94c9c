//go:build soak

package sqltest_test

import "time"

// How long the tests of trouble go on.
const (
	crashRuns = 20
	crashFor  = 3 * time.Second
	killRuns  = 100
	kills     = 10
)
