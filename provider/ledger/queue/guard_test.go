package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// A stallFS fails each table that is flushed, but not before a writer waits for it.
type stallFS struct {
	vfs.FS
	stalled chan struct{}
}

func (fs *stallFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == "pebble-memtable-flush" {
		<-fs.stalled
		return nil, fmt.Errorf("%s: %w", name, syscall.ENOSPC)
	}
	return fs.FS.Create(name, category)
}

// A write that fails while a writer waits for it ends the wait, too: the append
// ends with an error, all that was acknowledged can be read, and the database can be
// closed.
func TestAFailedWriteEndsAStall(t *testing.T) {
	fs := &stallFS{FS: vfs.NewMem(), stalled: make(chan struct{})}
	var once sync.Once
	db, guard, err := queue.OpenDB("dir", &pebble.Options{FS: fs, MemTableSize: 32 << 10, EventListener: &pebble.EventListener{
		WriteStallBegin: func(pebble.WriteStallBeginInfo) { once.Do(func() { close(fs.stalled) }) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := &store{t: t, db: db, guard: guard}
	l := s.ledger(&queue.LedgerOptions{TailBytes: 1})
	var acked []string
	for err == nil && len(acked) < 100_000 {
		r := record(len(acked))
		if _, err = l.Append(r); err == nil {
			acked = append(acked, string(r.Data))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "dir/") {
		t.Errorf("error %v does not say that the disk is full, and which file", err)
	}
	has := func(l *queue.Ledger, when string) {
		t.Helper()
		if got := readAll(t, l); len(got) < len(acked) || !slices.Equal(got[:len(acked)], acked) {
			t.Errorf("%s %d entries can be read, want the %d that are acknowledged", when, len(got), len(acked))
		}
	}
	has(l, "after the failure")
	s.close()
	s.fs = fs.FS
	s.open()
	has(s.ledger(nil), "opened anew,")
	s.close()
}

// Whatever write fails, and from then on for ever: appends end with an error
// that names the file, what was acknowledged stays readable, the database can be
// closed, and opened anew on a disk that is well it holds all of it.
func TestAFailedWriteLosesNothingAcknowledged(t *testing.T) {
	isWrite := func(op errorfs.Op) bool { return op.Kind.ReadOrWrite() == errorfs.OpIsWrite }
	tests := []struct {
		name  string
		fails func(op errorfs.Op) bool
	}{
		{"write of the log", func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log")
		}},
		{"sync of the log", func(op errorfs.Op) bool { return isSync(op.Kind) && strings.HasSuffix(op.Path, ".log") }},
		{"next log", func(op errorfs.Op) bool {
			return (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite) && strings.HasSuffix(op.Path, ".log")
		}},
		{"table", func(op errorfs.Op) bool { return isWrite(op) && strings.HasSuffix(op.Path, ".sst") }},
		{"manifest", func(op errorfs.Op) bool { return isWrite(op) && strings.Contains(op.Path, "MANIFEST") }},
		{"everything", isWrite},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mem := vfs.NewMem()
			var broken atomic.Bool
			s := &store{t: t, fs: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if broken.Load() && tt.fails(op) {
					return fmt.Errorf("%s: %w", op.Path, syscall.ENOSPC)
				}
				return nil
			}))}
			db, guard, err := queue.OpenDB("dir", &pebble.Options{FS: s.fs, MemTableSize: 32 << 10})
			if err != nil {
				t.Fatal(err)
			}
			s.db, s.guard = db, guard
			l := s.ledger(&queue.LedgerOptions{TailBytes: 1})
			p := queue.NewProducer(l, nil)
			var mu sync.Mutex
			acked := map[string]bool{}
			var failed error
			var wg sync.WaitGroup
			for c := range 4 {
				wg.Go(func() {
					for i := 0; i < 100_000; i++ {
						if i == 100 {
							broken.Store(true)
						}
						r := record(i*4 + c)
						err := p.Append(t.Context(), r)
						mu.Lock()
						if err == nil {
							acked[string(r.Data)] = true
						} else {
							failed = err
						}
						mu.Unlock()
						if err != nil {
							return
						}
					}
				})
			}
			wg.Wait()
			if failed == nil {
				t.Fatal("no append failed")
			}
			if !errors.Is(failed, syscall.ENOSPC) || !strings.Contains(failed.Error(), "dir/") {
				t.Errorf("error %q does not say that the disk is full, and which file", failed)
			}
			if _, err := l.Append(record(1)); err == nil || errors.Is(err, queue.ErrUnknown) {
				t.Errorf("Append after the failure: %v, want that nothing is stored", err)
			}
			if err := l.DeleteTo(5); err == nil {
				t.Error("DeleteTo after the failure: no error")
			}
			has := func(l *queue.Ledger, when string) {
				t.Helper()
				n := 0
				for _, d := range readAll(t, l) {
					if acked[d] {
						n++
					}
				}
				if n != len(acked) {
					t.Errorf("%s %d of %d acknowledged entries can be read", when, n, len(acked))
				}
			}
			has(l, "after the failure")
			p.Close()
			s.close()
			broken.Store(false)
			s.fs = mem
			s.open()
			has(s.ledger(nil), "opened anew,")
			mustAppend(t, s.ledger(nil), record(1_000_000))
			s.close()
		})
	}
}

// A commit that fails takes with it who waited for it, also who waited for its
// original.
func TestFailedCommitIsUnknownToAllWhoWait(t *testing.T) {
	mem := vfs.NewMem()
	var broken atomic.Bool
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	s := &store{t: t, fs: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && isSync(op.Kind) && strings.HasSuffix(op.Path, ".log") {
			entered <- struct{}{}
			<-leave
			return syscall.EIO
		}
		return nil
	}))}
	s.open()
	l := s.ledger(nil)
	p := queue.NewProducer(l, &queue.ProducerOptions{Duplicates: 1 << 40})
	broken.Store(true)
	results := make(chan error, 3)
	go func() { results <- p.Append(t.Context(), record(1)) }()
	<-entered
	if err := p.AppendFunc(t.Context(), func(err error) { results <- err }, record(1)); err != nil {
		t.Fatal(err)
	}
	if err := p.AppendFunc(t.Context(), func(err error) { results <- err }, record(2)); err != nil {
		t.Fatal(err)
	}
	close(leave)
	unknown := 0
	for range 3 {
		err := <-results
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%v, want the error of the disk", err)
		}
		if errors.Is(err, queue.ErrUnknown) {
			unknown++
		}
	}
	if unknown != 2 {
		t.Errorf("%d outcomes are unknown, want 2: the first and its duplicate; the last was never tried", unknown)
	}
	if l.Len() != 0 {
		t.Errorf("%d entries can be read that nobody was told of", l.Len())
	}
	p.Close()
	s.close()
}

func TestOpenDBSaysWhatIsWrong(t *testing.T) {
	mem := vfs.NewMem()
	full := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".log") {
			return syscall.ENOSPC
		}
		return nil
	}))
	if _, _, err := queue.OpenDB("dir", &pebble.Options{FS: full}); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "dir") {
		t.Errorf("OpenDB on a full disk: %v", err)
	}
	db, _, err := queue.OpenDB("dir", &pebble.Options{FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := queue.OpenDB("dir", &pebble.Options{FS: mem}); err == nil || !strings.Contains(err.Error(), "dir") {
		t.Errorf("OpenDB of a database that is open: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
