//go:build !linux

package ledger

import "github.com/cockroachdb/pebble/v2/vfs"

// mapFile maps nothing: whether a sync covers what was written to mapped memory
// is known of Linux only.
func mapFile(vfs.File, int) []byte { return nil }

func unmap([]byte) {}

func copyMapped(to, from []byte) error {
	copy(to, from)
	return nil
}
