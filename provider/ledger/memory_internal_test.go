package ledger

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/messaging"
)

// TestNothingIsHeldForNobody holds a subscription without a member to keeping
// nothing of what was read ahead for one.
func TestNothingIsHeldForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openOn(t, vfs.NewCrashableMem(), Options{})
		sub := messaging.Subscription{Name: "s"}
		src := member(t, b, sub)
		publishIDs(t, b, "a", "b", "c")
		must(t, next(t, src).Ack(t.Context()))
		must(t, src.Close())
		c := b.find(sub)
		if len(c.ahead) > 0 {
			t.Errorf("%d events are held", len(c.ahead))
		}
		src = member(t, b, sub)
		for _, id := range []string{"b", "c"} {
			if d := next(t, src); d == nil || d.Value.ID() != id || d.Info.Attempt != 1 {
				t.Fatalf("received %+v, want %s for the first time", d, id)
			}
		}
	})
}

// TestReasonIsBounded fails deliveries for a reason that is very long. What is
// kept of it, in memory, in the journal and on the disk, is as much as a dead
// letter can tell.
func TestReasonIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openOn(t, vfs.NewCrashableMem(), Options{})
		sub := messaging.Subscription{Name: "s"}
		src := member(t, b, sub)
		publishIDs(t, b, "a")
		long := "\x00" + strings.Repeat("ä", 1<<20)
		must(t, next(t, src).Retry(t.Context(), 0))
		d := next(t, src)
		must(t, d.Reject(t.Context(), long))
		if _, n, _ := b.journal.status(); n > 8*messaging.MaxReason {
			t.Errorf("the journal has %d bytes", n)
		}
		letter, ok := messaging.DeadLetterFrom(next(t, member(t, b, messaging.Subscription{Name: "d", DeadLettersOf: "s"})).Info)
		if !ok || len(letter.Reason) < messaging.MaxReason-1 || !strings.HasPrefix(letter.Reason, " ä") {
			t.Errorf("the dead letter has a reason of %d bytes: %.20q", len(letter.Reason), letter.Reason)
		}
	})
}

// TestSyncThatFailedOnce lets the sync fail, once, that ends a journal. The disk
// may have dropped what it could not write, and says nothing of it the next time:
// what waits for the disk waits until another file has it, or the rows tell of it.
func TestSyncThatFailedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := false
		b := openOn(t, vfs.NewCrashableMem(), Options{})
		b.journal.mu.Lock()
		b.journal.file = &failingFile{File: b.journal.file, fails: &fails}
		b.journal.mu.Unlock()
		member(t, b, messaging.Subscription{Name: "s"})
		place, _ := b.journal.append(record{kind: recordSettled, inc: 1, seq: 1})
		fails = true
		if err := b.journal.rotate(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("rotate: %v, want %v", err, syscall.EIO)
		}
		fails = false
		if err := b.journal.sync(place); !errors.Is(err, syscall.EIO) {
			t.Errorf("a sync after one that failed: %v, want %v", err, syscall.EIO)
		}
		must(t, b.checkpoint())
		must(t, b.journal.sync(place))
	})
}

type failingFile struct {
	vfs.File
	fails *bool
}

func (f *failingFile) SyncData() error {
	if *f.fails {
		return syscall.EIO
	}
	return f.File.SyncData()
}

// TestFrozenStoreBeginsNoJournals breaks the store and then the journal. A new
// journal would not help: none is begun, however long that lasts.
func TestFrozenStoreBeginsNoJournals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		var broken atomic.Bool
		b, err := Open("dir", Options{}.On(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && strings.HasPrefix(op.Path, "dir/store") && op.Kind == errorfs.OpFileWrite {
				return syscall.EIO
			}
			return nil
		}))))
		must(t, err)
		src := member(t, b, messaging.Subscription{Name: "s"})
		publishIDs(t, b, "a")
		broken.Store(true)
		if _, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "new"}, nil); !errors.Is(err, syscall.EIO) {
			t.Fatalf("Subscribe: %v, want %v", err, syscall.EIO)
		}
		b.journal.mu.Lock()
		b.journal.err = syscall.EIO
		b.journal.mu.Unlock()
		b.stir()
		for range 10 {
			if d := next(t, src); d != nil {
				t.Fatalf("%s is handed out, and nobody wrote it down", d.Value.ID())
			}
		}
		time.Sleep(time.Minute)
		if numbers, err := journals(mem, "dir"); err != nil || len(numbers) != 1 {
			t.Errorf("there are journals %v, %v, want one", numbers, err)
		}
		if err := b.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("Close: %v, want %v", err, syscall.EIO)
		}
	})
}
