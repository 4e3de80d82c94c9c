package ledger

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/messaging"
)

// TestDeadLettersThatNoSyncLost lets the loss of power take a dead letter, and leave
// the record that it was received. What gets its number then is received, too.
func TestDeadLettersThatNoSyncLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := Options{Sync: SyncNever}
		b := openOn(t, vfs.NewCrashableMem(), opts)
		sub, dead := messaging.Subscription{Name: "s"}, messaging.Subscription{Name: "d", DeadLettersOf: "s"}
		src, list := member(t, b, sub), member(t, b, dead)
		publishIDs(t, b, "a", "b", "c")
		must(t, src.Close())
		must(t, list.Close())
		must(t, b.Close())
		b = openOn(t, b.fs, opts)
		src, list = member(t, b, sub), member(t, b, dead)
		must(t, next(t, src).Reject(t.Context(), "why"))
		must(t, next(t, list).Reject(t.Context(), "why"))
		must(t, b.journal.flushAll())
		b = after(t, b, 0, opts)
		src, list = member(t, b, sub), member(t, b, dead)
		d := next(t, src)
		must(t, d.Reject(t.Context(), "why"))
		if next(t, list) == nil {
			t.Fatal("the dead letter is not delivered")
		}
	})
}

// TestJournalsGoAfterTheRows loses power without Sync. A journal that is removed has
// left what it says in rows that are there: an event that waits is not lost.
func TestJournalsGoAfterTheRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := Options{Sync: SyncNever}
		b := openOn(t, vfs.NewCrashableMem(), opts)
		sub := messaging.Subscription{Name: "s"}
		src := member(t, b, sub)
		publishIDs(t, b, "a", "b", "c")
		must(t, src.Close())
		must(t, b.Close())
		b = openOn(t, b.fs, opts)
		src = member(t, b, sub)
		must(t, next(t, src).Retry(t.Context(), 0))
		must(t, next(t, src).Retry(t.Context(), time.Minute))
		must(t, b.checkpoint())
		must(t, next(t, src).Ack(t.Context())) // b
		must(t, b.checkpoint())
		must(t, next(t, src).Ack(t.Context())) // c
		must(t, b.checkpoint())
		b = after(t, b, 0, opts)
		src = member(t, b, sub)
		time.Sleep(time.Hour)
		seen := map[string]bool{}
		for d := next(t, src); d != nil; d = next(t, src) {
			seen[d.Value.ID()] = true
		}
		if !seen["a"] {
			t.Error("an event that waits is lost")
		}
	})
}
