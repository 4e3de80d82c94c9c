package ledger_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
	"github.com/catchment-events/catchment/reactor"
)

// waits are the settles that wait for the disk, and for which files.
var waits = map[string]struct {
	file    string
	dead    bool // it is a dead letter that is settled
	outcome reactor.Outcome
}{
	"ack":                {"journal-", false, reactor.Outcome{Result: reactor.Acked}},
	"ack of dead letter": {".log", true, reactor.Outcome{Result: reactor.Acked}},
	"reject":             {".log", false, reactor.Outcome{Result: reactor.Rejected}},
	"last retry":         {".log", false, reactor.Outcome{Result: reactor.Retried}},
}

// begin opens a broker on a disk, and receives an event, or its dead letter.
func begin(t *testing.T, disk errorfs.Injector, dead bool) (*ledger.Broker, messaging.Source, *messaging.Delivery) {
	t.Helper()
	b := openIn(t, errorfs.Wrap(vfs.NewCrashableMem(), disk), "dir", ledger.Options{ConfirmedAck: true})
	src := subscribe(t, b, messaging.Subscription{Name: "s", MaxAttempts: 1})
	publish(t, b, "a")
	d := receive(t, src, "a", 1)
	if dead {
		want(t, d.Reject(t.Context(), "why"))
		src = subscribe(t, b, messaging.Subscription{Name: "dead", DeadLettersOf: "s"})
		d = receive(t, src, "a", 1)
	}
	time.Sleep(time.Second) // nothing waits to be written any more
	return b, src, d
}

// TestSettleHeedsContext lets the disk stand still: a settle waits as long as its
// context does, and may be repeated until it is confirmed [ACK-6].
func TestSettleHeedsContext(t *testing.T) {
	for name, tt := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := stall(tt.file)
				b, src, d := begin(t, disk, tt.dead)
				disk.on.Store(true)
				time.AfterFunc(20*time.Second, disk.goOn)
				short := func(settle func(context.Context) error) {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					began := time.Now()
					wantErr(t, settle(ctx), context.DeadlineExceeded)
					if took := time.Since(began); took != time.Second {
						t.Errorf("it took %v, want 1s", took)
					}
				}
				again := func(ctx context.Context) error { return d.Settle(ctx, tt.outcome) }
				short(again)
				short(again)
				short(d.Release)
				short(func(ctx context.Context) error { _, err := d.Extend(ctx); return err })
				want(t, again(t.Context()))
				wantErr(t, d.Ack(t.Context()), reactor.ErrSettled)
				nothing(t, src, time.Hour)
				s := status(t, b, "s")
				letters := uint64(1)
				if tt.outcome.Result == reactor.Acked {
					letters = 0
				}
				if s.InFlight != 0 || s.DeadLetters != letters {
					t.Errorf("in flight %d, dead letters %d, want 0, %d", s.InFlight, s.DeadLetters, letters)
				}
			})
		})
	}
}

// TestSettledAfterContext lets a settle succeed after its context: nothing else can
// become of the delivery [ACK-6].
func TestSettledAfterContext(t *testing.T) {
	for name, tt := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := stall(tt.file)
				_, src, d := begin(t, disk, tt.dead)
				disk.on.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				wantErr(t, d.Settle(ctx, tt.outcome), context.DeadlineExceeded)
				disk.goOn()
				synctest.Wait()
				_, err := d.Extend(t.Context())
				wantErr(t, err, reactor.ErrSettled)
				wantErr(t, d.Release(t.Context()), reactor.ErrSettled)
				nothing(t, src, time.Hour)
			})
		})
	}
}

// TestSettleAfterContextEnded settles with a context that has ended: it waits for the
// disk all the same [ACK-8].
func TestSettleAfterContextEnded(t *testing.T) {
	for name, tt := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := stall(tt.file)
				_, src, d := begin(t, disk, tt.dead)
				disk.on.Store(true)
				time.AfterFunc(20*time.Second, disk.goOn)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				want(t, d.Settle(ctx, tt.outcome))
				nothing(t, src, time.Hour)
			})
		})
	}
}

// TestAckFailsAfterContext lets the disk fail an ack whose context has ended: it has
// not settled, and the member still has the delivery [ACK-6].
func TestAckFailsAfterContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		gate := make(chan struct{})
		_, src, d := begin(t, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && op.Kind == errorfs.OpFileSyncData && strings.Contains(op.Path, "journal-") {
				<-gate
				return &os.PathError{Op: "sync", Path: op.Path, Err: syscall.EIO}
			}
			return nil
		}), false)
		broken.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, d.Ack(ctx), context.DeadlineExceeded)
		close(gate)
		synctest.Wait()
		wantErr(t, d.Ack(t.Context()), syscall.EIO)
		broken.Store(false)
		time.Sleep(time.Second) // another journal
		want(t, d.Release(t.Context()))
		want(t, receive(t, src, "a", 1).Ack(t.Context()))
		nothing(t, src, time.Hour)
	})
}

// TestCloseDuringAck closes source and broker after the context of an ack has ended,
// and before the disk has it: the broker waits for it, and it is done.
func TestCloseDuringAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := stall("journal-")
		mem := vfs.NewCrashableMem()
		opts := ledger.Options{ConfirmedAck: true}
		b := openIn(t, errorfs.Wrap(mem, disk), "dir", opts)
		sub := messaging.Subscription{Name: "s", AckWait: time.Hour}
		src := subscribe(t, b, sub)
		publish(t, b, "a", "b")
		d := receive(t, src, "a", 1)
		disk.on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, d.Ack(ctx), context.DeadlineExceeded)
		time.AfterFunc(time.Minute, disk.goOn)
		want(t, src.Close())
		want(t, b.Close())
		want(t, d.Ack(t.Context()))
		receive(t, subscribe(t, openIn(t, mem, "dir", opts), sub), "b", 1)
	})
}

// TestSecondCloseOfSource begins a Close while another waits for the journal: when it
// has returned, what the member had is given back, whatever becomes of the process.
func TestSecondCloseOfSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		gate := make(chan struct{})
		mem := vfs.NewCrashableMem()
		b := openIn(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind == errorfs.OpFileWriteAt && strings.Contains(op.Path, "journal-") {
				<-gate
			}
			return nil
		})), "dir", ledger.Options{})
		sub := messaging.Subscription{Name: "s"}
		src := subscribe(t, b, sub)
		publish(t, b, "a")
		receive(t, src, "a", 1)
		time.Sleep(time.Second) // nothing waits to be written any more
		full.Store(true)
		closed := make(chan error, 2)
		for range cap(closed) {
			go func() { closed <- src.Close() }()
		}
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("Close returned before the journal was written")
		}
		full.Store(false)
		close(gate)
		for range cap(closed) {
			want(t, <-closed)
		}
		b = openIn(t, crash(mem, 100, 1), "dir", ledger.Options{})
		receive(t, subscribe(t, b, sub), "a", 1)
	})
}
