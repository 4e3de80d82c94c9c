package ledger

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openOn opens a broker in a directory of a file system in memory.
func openOn(t *testing.T, fs vfs.FS, opts Options) *Broker {
	t.Helper()
	b, err := Open("dir", opts.On(fs))
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return b
}

// after opens what a crash leaves, with so many percent of what was not synced.
func after(t *testing.T, b *Broker, percent int, opts Options) *Broker {
	t.Helper()
	return openOn(t, b.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 2))}), opts)
}

func publishIDs(t testing.TB, b *Broker, ids ...string) {
	t.Helper()
	for _, id := range ids {
		e, err := event.New("/test", "test", nil)
		must(t, err)
		e.SetID(id)
		must(t, b.Publish(context.Background(), e))
	}
}

func member(t testing.TB, b *Broker, sub messaging.Subscription) messaging.Source {
	t.Helper()
	src, err := b.Subscribe(context.Background(), sub, func(context.Context, error) {})
	must(t, err)
	return src
}

// next receives, for a second, and returns nil when nothing comes.
func next(t testing.TB, src messaging.Source) *messaging.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	d, err := src.Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	must(t, err)
	return d
}

func letterCount(t testing.TB, b *Broker) (n uint64) {
	t.Helper()
	all, err := b.Subscriptions(context.Background())
	must(t, err)
	for _, s := range all {
		n += s.DeadLetters
	}
	return n
}

// condemned returns a broker whose subscription has got an event, and what a reject
// of that has done before it is buried.
func condemned(t *testing.T, sub messaging.Subscription) (*Broker, *consumer, graves) {
	t.Helper()
	b := openOn(t, vfs.NewCrashableMem(), Options{})
	src := member(t, b, sub)
	publishIDs(t, b, "a")
	if next(t, src) == nil {
		t.Fatal("nothing is delivered")
	}
	c := b.find(sub)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds.Remove(c.out[1].hold)
	c.condemn(c.out[1])
	return b, c, c.dig()
}

// TestRejectDuringDelete ends a subscription while an event is on its way to its
// dead letters: it gets there, or the member hears that it came too late.
func TestRejectDuringDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := messaging.Subscription{Name: "s"}
		b, c, graves := condemned(t, sub)
		_, err := b.Delete(t.Context(), sub)
		must(t, err)
		if lost := c.bury(graves); len(lost) != 1 {
			t.Errorf("%d events are said to be lost, want 1", len(lost))
		}
		if next(t, member(t, b, sub)) == nil {
			t.Error("the new subscription gets nothing")
		}
	})
}

// TestRejectDuringSeek moves a subscription back while an event is on its way to
// its dead letters: the event is delivered anew, also after a kill [ADM-2].
func TestRejectDuringSeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := messaging.Subscription{Name: "s"}
		b, c, graves := condemned(t, sub)
		must(t, b.Seek(t.Context(), sub, messaging.StartFirst()))
		c.bury(graves)
		b = after(t, b, 100, Options{})
		if next(t, member(t, b, sub)) == nil {
			t.Error("the event that was sought is not delivered")
		}
	})
}

// TestRejectIsWrittenWithoutRoom rejects an event for which the dead letters
// have no room, and kills the process: it is not delivered again [ACK-4].
func TestRejectIsWrittenWithoutRoom(t *testing.T) {
	for _, of := range []string{"", "s"} {
		t.Run("of "+of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := Options{MaxDeadLetters: 1, AckDelay: time.Hour}
				b := openOn(t, vfs.NewCrashableMem(), opts)
				sub := messaging.Subscription{Name: "s"}
				src := member(t, b, sub)
				publishIDs(t, b, "a", "b")
				must(t, next(t, src).Reject(t.Context(), "why"))
				if of != "" {
					sub = messaging.Subscription{Name: "d", DeadLettersOf: of}
					src = member(t, b, sub)
				}
				must(t, next(t, src).Reject(t.Context(), "why"))
				b = after(t, b, 100, opts)
				if d := next(t, member(t, b, sub)); d != nil {
					t.Errorf("%s is delivered again, attempt %d", d.Value.ID(), d.Info.Attempt)
				}
			})
		})
	}
}

// TestClearDuringBurial buries, clears, and buries in one commit.
func TestClearDuringBurial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openOn(t, vfs.NewCrashableMem(), Options{MaxDeadLetters: 2})
		sub := messaging.Subscription{Name: "s"}
		src := member(t, b, sub)
		publishIDs(t, b, "a", "b", "c", "d")
		must(t, next(t, src).Reject(t.Context(), "why"))
		burial := func(seq uint64) *change { return &change{burial: &burial{item: &item{seq: seq}, inc: 1}} }
		clear := &change{all: true}
		b.lettersOf("s").change([]*change{burial(2), clear, burial(3)})
		if clear.count != 2 {
			t.Errorf("cleared %d, want 2", clear.count)
		}
		if n := letterCount(t, b); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
		b = after(t, b, 0, Options{MaxDeadLetters: 2})
		if n := letterCount(t, b); n != 1 {
			t.Errorf("%d dead letters after a crash, want 1", n)
		}
	})
}

// TestBuriedIsRememberedWhileItIsAhead lets the loss of power take everything
// that the journal says of a burial. Until the row of the subscription tells of
// it, a new journal must not forget it [DLQ-1].
func TestBuriedIsRememberedWhileItIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := Options{AckDelay: time.Hour}
		b := openOn(t, vfs.NewCrashableMem(), opts)
		sub := messaging.Subscription{Name: "s"}
		src := member(t, b, sub)
		publishIDs(t, b, "a")
		must(t, next(t, src).Reject(t.Context(), "why"))
		for range 2 {
			b = after(t, b, 0, opts)
			if d := next(t, member(t, b, sub)); d != nil {
				t.Fatalf("%s is delivered, attempt %d, though it is buried", d.Value.ID(), d.Info.Attempt)
			}
			must(t, b.checkpoint())
		}
		if n := letterCount(t, b); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// TestRowsDoNotOutrunTheJournal rejects an event between the beginning of a new
// journal and the rows that build on it, and crashes after: what the disk has of
// the journal does not undo what the rows say.
func TestRowsDoNotOutrunTheJournal(t *testing.T) {
	for _, percent := range []int{0, 100} {
		opts := Options{AckDelay: time.Hour}
		b := openOn(t, vfs.NewCrashableMem(), opts)
		sub := messaging.Subscription{Name: "s"}
		src := member(t, b, sub)
		publishIDs(t, b, "a")
		d := next(t, src)
		b.admin.Lock()
		before := b.journal.current()
		var work sync.WaitGroup
		work.Go(func() { must(t, b.checkpoint()) })
		for b.journal.current() == before { // it comes to the mutex
			runtime.Gosched()
		}
		must(t, d.Retry(t.Context(), 0))
		must(t, next(t, src).Reject(t.Context(), "why"))
		b.admin.Unlock()
		work.Wait()
		b = after(t, b, percent, opts)
		if d := next(t, member(t, b, sub)); d != nil {
			t.Errorf("after a crash that leaves %d%%, %s is delivered again, attempt %d", percent, d.Value.ID(), d.Info.Attempt)
		}
	}
}
