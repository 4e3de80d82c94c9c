package queue_test

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// The power goes before each write of the first Open of a directory, and some of
// what was not synced is there. What that leaves can be opened.
func TestOpenAfterACrashOfTheFirstOpen(t *testing.T) {
	for seed := range uint64(10) {
		for at, more := 1, true; more; at++ {
			mem := vfs.NewCrashableMem()
			var disk atomic.Pointer[vfs.MemFS] // what is left
			var writes atomic.Int64
			crash := func() {
				disk.Store(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 30, RNG: rand.New(rand.NewPCG(seed, uint64(at)))}))
			}
			q, err := queue.Open("dir", &queue.Options{FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && writes.Add(1) == int64(at) {
					crash()
				}
				return nil
			}))})
			if err != nil {
				t.Fatal(err)
			}
			if more = disk.Load() != nil; !more {
				crash()
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			q, err = queue.Open("dir", &queue.Options{FS: disk.Load()})
			if err != nil {
				t.Errorf("after a crash before write %d: %v", at, err)
				continue
			}
			if err := q.Append(t.Context(), queue.Record{Data: []byte("a")}); err != nil {
				t.Error(err)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestOpenFails fails a write of Open, or it and all after it: of a new directory, and
// of one whose process was killed and left a log to be stored in tables. Open returns
// the error, and the next one has all that was there.
func TestOpenFails(t *testing.T) {
	broken := errors.New("broken")
	killed := vfs.NewCrashableMem()
	q, err := queue.Open("dir", &queue.Options{FS: killed})
	if err != nil {
		t.Fatal(err)
	}
	const entries = 100
	for range entries {
		if err := q.Append(t.Context(), queue.Record{Data: []byte("a")}); err != nil {
			t.Fatal(err)
		}
	}
	left := func() *vfs.MemFS { return killed.CrashClone(vfs.CrashCloneCfg{}) }
	defer func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, c := range map[string]struct {
		fs  func() *vfs.MemFS
		has uint64
	}{
		"new":    {vfs.NewMem, 0},
		"killed": {left, entries},
	} {
		for _, forever := range []bool{false, true} {
			for at, more := int64(1), true; more; at++ {
				mem := c.fs()
				var writes atomic.Int64
				q, err := queue.Open("dir", &queue.Options{FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpRemove {
						return nil
					}
					if n := writes.Add(1); n == at || forever && n > at {
						return broken
					}
					return nil
				}))})
				if more = writes.Load() >= at; err == nil {
					_ = q.Close() // of a store that may have failed since
				} else if !errors.Is(err, broken) {
					t.Errorf("%s, write %d failed: %v, want the reason", name, at, err)
				}
				q, err = queue.Open("dir", &queue.Options{FS: mem})
				if err != nil {
					t.Errorf("%s, after write %d failed: %v", name, at, err)
					continue
				}
				if n := q.Ledger().Len(); n != c.has {
					t.Errorf("%s, after write %d failed: %d entries, want %d", name, at, n, c.has)
				}
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
