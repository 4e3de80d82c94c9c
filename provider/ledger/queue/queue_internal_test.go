package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Close returns the error after which the queue deleted nothing more, and not one
// after which it went on.
func TestCleaningThatGoesOn(t *testing.T) {
	for name, mended := range map[string]bool{"fails to the end": false, "goes on": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, err := Open("dir", &Options{FS: vfs.NewMem(), Cleaner: &CleanerOptions{MaxEntries: 1, Unclaimed: true}})
				if err != nil {
					t.Fatal(err)
				}
				bad := q.table.key("bad") // marks that nobody can read
				if err := q.db.Set(bad, nil, pebble.Sync); err != nil {
					t.Fatal(err)
				}
				for range 10 {
					if err := q.Append(t.Context(), Record{Data: []byte("a")}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(10 * cleanPause)
				left := uint64(10)
				if mended {
					if err := q.db.Delete(bad, pebble.Sync); err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * cleanPause)
					left = 1
				}
				if n := q.Ledger().Len(); n != left {
					t.Errorf("%d entries are left, want %d", n, left)
				}
				if err := q.Close(); (err == nil) != mended {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}
