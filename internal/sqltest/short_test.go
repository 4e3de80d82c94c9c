//go:build !soak

package sqltest_test

import "time"

// How long the tests of trouble go on; with -tags soak, longer.
const (
	crashRuns = 1
	crashFor  = 1500 * time.Millisecond
	killRuns  = 1
	kills     = 10
)
