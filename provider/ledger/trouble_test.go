package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// A full disk has no room for files whose path contains some text, while it is
// full.
type full struct {
	text string
	on   atomic.Bool
}

func (f *full) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpReuseForWrite:
		if f.on.Load() && strings.Contains(op.Path, f.text) {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
	}
	return nil
}

func (f *full) String() string { return "full" }

// TestFullDisk fills the disk while events are published. That fails, and says
// why; what was acknowledged can be read meanwhile, and is there afterwards.
func TestFullDisk(t *testing.T) {
	for _, text := range []string{"store", ".log", "dir"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem, disk := vfs.NewCrashableMem(), &full{text: text}
				b, err := ledger.Open("dir", ledger.Options{}.On(errorfs.Wrap(mem, disk)))
				want(t, err)
				var told reports
				src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", AckWait: time.Minute}, told.report)
				want(t, err)
				publish(t, b, "a", "b", "c")
				disk.on.Store(true)
				for range 3 {
					err = b.Publish(t.Context(), newEvent(t, "d"))
					if !errors.Is(err, syscall.ENOSPC) {
						t.Fatalf("Publish on a full disk: %v, want one that wraps %v", err, syscall.ENOSPC)
					}
				}
				_, err = b.Subscribe(t.Context(), messaging.Subscription{Name: "new"}, nil)
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("Subscribe on a full disk: %v, want one that wraps %v", err, syscall.ENOSPC)
				}
				if text == "dir" {
					// Nothing is handed out without a record of it.
					nothing(t, src, time.Minute)
					if len(told.all()) == 0 {
						t.Error("nobody was told")
					}
				} else {
					want(t, receive(t, src, "a", 1).Ack(t.Context()))
					receive(t, src, "b", 1)
				}
				disk.on.Store(false)
				if err := b.Close(); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("Close: %v, want one that wraps %v", err, syscall.ENOSPC)
				}

				b = openIn(t, mem, "dir", ledger.Options{})
				src = subscribe(t, b, messaging.Subscription{Name: "s", AckWait: time.Minute})
				if text == "dir" {
					want(t, receive(t, src, "a", 1).Ack(t.Context()))
				}
				want(t, receive(t, src, "b", 1).Ack(t.Context()))
				want(t, receive(t, src, "c", 1).Ack(t.Context()))
				publish(t, b, "d")
				want(t, receive(t, src, "d", 1).Ack(t.Context()))
				nothing(t, src, time.Hour)
			})
		})
	}
}

// TestFullJournal lets the journal alone find no room: Receive waits until there
// is some, and nothing is counted as delivered meanwhile.
func TestFullJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, disk := vfs.NewCrashableMem(), &full{text: "journal"}
		b := openIn(t, errorfs.Wrap(mem, disk), "dir", ledger.Options{})
		var told reports
		src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, told.report)
		want(t, err)
		disk.on.Store(true)
		publish(t, b, "a")
		nothing(t, src, time.Minute)
		if len(told.all()) == 0 || !errors.Is(told.all()[0], syscall.ENOSPC) {
			t.Errorf("reported %v, want why", told.all())
		}
		disk.on.Store(false)
		receive(t, src, "a", 1)
		b = openIn(t, crash(mem, 100, 1), "dir", ledger.Options{})
		receive(t, subscribe(t, b, messaging.Subscription{Name: "s"}), "a", 2)
	})
}

// damaged returns a directory of so many events, some of which are damaged.
func damaged(t *testing.T) (dir string, n uint64) {
	t.Helper()
	dir, n = t.TempDir(), 20_000
	b, err := ledger.Open(dir, nil)
	want(t, err)
	for i := range int(n) / 1000 {
		events := make([]event.Event, 1000)
		for j := range events {
			events[j] = newEvent(t, fmt.Sprint(1000*i+j))
			want(t, events[j].SetData("text/plain", strings.Repeat(fmt.Sprint(1000*i*j), 400)))
		}
		want(t, b.Publish(t.Context(), events...))
	}
	want(t, b.Close())
	tables, err := filepath.Glob(filepath.Join(dir, "store", "*.sst"))
	want(t, err)
	if len(tables) == 0 {
		t.Fatal("there is no table to damage")
	}
	for _, name := range tables {
		b, err := os.ReadFile(name)
		want(t, err)
		if len(b) > 1<<20 {
			copy(b[len(b)/2:], "damage")
			want(t, os.WriteFile(name, b, 0o644))
		}
	}
	return dir, n
}

// untilLast receives and acks until the last event has come, and returns how many
// came before.
func untilLast(t *testing.T, src messaging.Source) (got int) {
	t.Helper()
	for ; ; got++ {
		d, err := src.Receive(t.Context())
		want(t, err)
		want(t, d.Ack(t.Context()))
		if d.Value.ID() == "last" {
			return got
		}
	}
}

// readDamaged receives what can be read of n events, and wants all others reported as
// damaged, by errors with the directory and the file. It returns how many those are.
func readDamaged(t *testing.T, b *ledger.Broker, dir, file string, n uint64) (lost uint64) {
	t.Helper()
	var told reports
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, told.report)
	want(t, err)
	publish(t, b, "last")
	got := untilLast(t, src)
	for _, err := range told.all() {
		damage, ok := errors.AsType[*queue.DamageError](err)
		if !ok || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), file) {
			t.Errorf("reported %v, want a DamageError that names %s in %s", err, file, dir)
			continue
		}
		lost += damage.To - damage.From
	}
	if lost == 0 || uint64(got)+lost != n {
		t.Errorf("%d events arrived and %d were reported as damaged, of %d", got, lost, n)
	}
	return lost
}

// TestDamage changes bytes in the middle of the stored events. Those are passed
// over, with a report that names them and the file; all others arrive.
func TestDamage(t *testing.T) {
	dir, n := damaged(t)
	b, err := ledger.Open(dir, nil)
	want(t, err)
	defer func() { want(t, b.Close()) }()
	readDamaged(t, b, dir, "file 0", n)
}

// TestAdminOfDamage asks for the state of subscriptions that have damage before
// them, and ends one. What cannot be read is not counted.
func TestAdminOfDamage(t *testing.T) {
	dir, n := damaged(t)
	b, err := ledger.Open(dir, nil)
	want(t, err)
	defer func() { want(t, b.Close()) }()
	sub := messaging.Subscription{Name: "typed", Types: []string{"test"}}
	_, err = b.Subscribe(t.Context(), sub, nil)
	want(t, err)
	all, err := b.Subscriptions(t.Context())
	want(t, err)
	if len(all) != 1 || all[0].Pending == 0 || all[0].Pending >= n {
		t.Errorf("subscriptions %+v, want one with less than %d pending", all, n)
	}
	discarded, err := b.Delete(t.Context(), sub)
	want(t, err)
	if discarded != all[0].Pending {
		t.Errorf("Delete has discarded %d, want %d", discarded, all[0].Pending)
	}
}

// TestDamagedJournal cuts and changes a journal. A broker goes on from where it
// makes sense.
func TestDamagedJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		b := openIn(t, mem, "dir", ledger.Options{})
		sub := messaging.Subscription{Name: "s"}
		src := subscribe(t, b, sub)
		for i := range 20 {
			publish(t, b, fmt.Sprint(i))
			want(t, receive(t, src, fmt.Sprint(i), 1).Release(context.Background()))
			want(t, receive(t, src, fmt.Sprint(i), 1).Ack(context.Background()))
		}
		time.Sleep(time.Second)
		name := "dir/journal-000000000001"
		f, err := mem.Open(name)
		want(t, err)
		whole := make([]byte, 1<<20)
		n, _ := f.Read(whole)
		whole = whole[:n]
		for at := range whole {
			disk := crash(mem, 100, 1)
			f, err := disk.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
			want(t, err)
			_, err = f.WriteAt([]byte{^whole[at]}, int64(at))
			want(t, err)
			want(t, f.Close())
			b, err := ledger.Open("dir", ledger.Options{}.On(disk))
			if err != nil {
				if !strings.Contains(err.Error(), name) {
					t.Fatalf("byte %d: %v, which does not name %s", at, err, name)
				}
				continue
			}
			src, err := b.Subscribe(t.Context(), sub, nil)
			want(t, err)
			publish(t, b, "last")
			for last := false; !last; {
				d, err := src.Receive(t.Context())
				want(t, err)
				last = d.Value.ID() == "last"
			}
			want(t, b.Close())
		}
	})
}

// TestTroubleIsNoDamage lets the process run out of files when it has to open a
// table. That passes, and so nothing is given up for it: neither what is read
// ahead, nor what is read again, nor what is to be buried.
func TestTroubleIsNoDamage(t *testing.T) {
	for _, cause := range []syscall.Errno{syscall.EMFILE, syscall.EIO} {
		t.Run(cause.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewCrashableMem()
				b := openIn(t, mem, "dir", ledger.Options{})
				sub := messaging.Subscription{Name: "s", MaxAttempts: 2}
				src := subscribe(t, b, sub)
				for _, id := range []string{"first", "again", "bury", "ahead", "last"} { // opening reads the first and the last
					e := newEvent(t, id)
					want(t, e.SetData("text/plain", strings.Repeat(id, 10_000)))
					want(t, b.Publish(t.Context(), e))
				}
				want(t, receive(t, src, "first", 1).Ack(t.Context()))
				want(t, receive(t, src, "again", 1).Retry(t.Context(), 0))
				receive(t, src, "again", 2)
				receive(t, src, "bury", 1)
				b = kill(t, b, ledger.Options{}) // again has failed for good, and bury once
				mem = b.FS().(*vfs.MemFS)
				want(t, b.Close())

				var trouble atomic.Bool
				b = openIn(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if trouble.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsRead {
						return &os.PathError{Op: "read", Path: op.Path, Err: cause}
					}
					return nil
				})), "dir", ledger.Options{})
				trouble.Store(true)
				var told reports
				src, err := b.Subscribe(t.Context(), sub, told.report)
				want(t, err)
				nothing(t, src, time.Minute)
				for _, err := range told.all() {
					if !errors.Is(err, cause) {
						t.Errorf("reported %v, want why", err)
					}
				}
				if len(told.all()) == 0 {
					t.Error("nobody was told")
				}
				trouble.Store(false)
				receive(t, src, "bury", 2)
				receive(t, src, "ahead", 1)
				receive(t, src, "last", 1)
				nothing(t, src, 20*time.Second) // as long as a burial may wait for another try
				receive(t, subscribe(t, b, messaging.Subscription{Name: "dead", DeadLettersOf: "s"}), "again", 1)
			})
		})
	}
}

// TestBadSector lets the disk fail at one place of a table. What stands there is
// passed over, and everything else arrives.
func TestBadSector(t *testing.T) {
	mem := vfs.NewCrashableMem()
	b := openIn(t, mem, "dir", ledger.Options{})
	r := rand.New(rand.NewPCG(1, 2))
	const n = 20
	for i := range n {
		e := newEvent(t, fmt.Sprint(i))
		noise := make([]byte, 50_000)
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		want(t, e.SetData("application/octet-stream", noise))
		want(t, b.Publish(t.Context(), e))
	}
	want(t, b.Close())
	b = openIn(t, mem, "dir", ledger.Options{})
	want(t, b.Close())
	b = openIn(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpFileReadAt && op.Offset > 200_000 && op.Offset <= 300_000 {
			return &os.PathError{Op: "read", Path: op.Path, Err: syscall.EIO}
		}
		return nil
	})), "dir", ledger.Options{})
	if lost := readDamaged(t, b, "dir", ".sst", n); lost > 4 {
		t.Errorf("%d were reported as damaged, want 4 at most", lost)
	}
}
