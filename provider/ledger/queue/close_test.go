package queue_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// What was settled while the consumer closed is settled, or Settle says no.
func TestSettleDuringClose(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	mustAppend(t, l, records(0, 1)...)
	for i := range 3000 {
		name := fmt.Sprint(i)
		c := consumer(t, l, s.table(), name, nil)
		e := mustNext(t, c)
		var settled error
		var wg sync.WaitGroup
		wg.Go(func() { settled = c.Settle(e.Seq) })
		if i%2 == 0 {
			runtime.Gosched()
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		m, _, _, err := s.table().Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if settled == nil && !m.Marked(e.Seq) {
			t.Fatalf("round %d: Settle returned nil, and Close has not saved it", i)
		}
	}
}

// A queue that closes while consumers are opened waits for them.
func TestConsumerDuringClose(t *testing.T) {
	for i := range 200 {
		q, err := queue.Open("dir", &queue.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				for range i {
					runtime.Gosched()
				}
				c, err := q.Consumer(fmt.Sprint(n), nil)
				if err != nil && !errors.Is(err, queue.ErrClosed) {
					t.Error(err)
				}
				if err == nil {
					_ = c.Close()
				}
			})
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// A Close that returned has closed, also if another began before it.
func TestSecondClose(t *testing.T) {
	fs := newSlowFS()
	q, err := queue.Open("dir", &queue.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	fs.block()
	appended := make(chan error, 1)
	go func() { appended <- q.Append(t.Context(), records(0, 1)...) }()
	<-fs.blocked
	closed := make(chan error, 2)
	for range cap(closed) {
		go func() { closed <- q.Close() }()
	}
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v before the queue had closed", err)
	case <-time.After(100 * time.Millisecond):
	}
	fs.release()
	for range cap(closed) {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
	if err := <-appended; err != nil {
		t.Error(err)
	}
	again, err := queue.Open("dir", &queue.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// A Close of a consumer that returned has saved what was settled, and freed the
// name, also if another began before it; and the queue closes after both.
func TestSecondCloseOfConsumer(t *testing.T) {
	fs := newSlowFS()
	q, err := queue.Open("dir", &queue.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Append(t.Context(), records(0, 1)...); err != nil {
		t.Fatal(err)
	}
	c, err := q.Consumer("c", &queue.ConsumerOptions{FlushDelay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(mustNext(t, c).Seq); err != nil {
		t.Fatal(err)
	}
	other, err := q.Consumer("other", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	fs.block()
	closed := make(chan error, 3)
	go func() { closed <- c.Close() }()
	<-fs.blocked
	if _, err := q.Consumer("other", nil); err != nil { // the queue looks which are closed
		t.Fatal(err)
	}
	go func() { closed <- c.Close() }()
	go func() { closed <- q.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v before the consumer had closed", err)
	case <-time.After(100 * time.Millisecond):
	}
	fs.release()
	for range cap(closed) {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
}

// A Flush that failed has not saved anything, and the next one does not say so.
func TestFlushFailsForGood(t *testing.T) {
	var full atomic.Bool
	s := &store{t: t, fs: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log") {
			return syscall.ENOSPC
		}
		return nil
	}))}
	db, guard, err := queue.OpenDB("dir", &pebble.Options{FS: s.fs})
	if err != nil {
		t.Fatal(err)
	}
	s.db, s.guard = db, guard
	defer db.Close()
	l := s.ledger(nil)
	mustAppend(t, l, records(0, 1)...)
	c := consumer(t, l, s.table(), "c", nil)
	e := mustNext(t, c)
	full.Store(true)
	if err := c.Settle(e.Seq); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Flush(); err == nil {
			t.Error("Flush on a full disk returned nil")
		}
	}
	if err := c.Close(); err == nil {
		t.Error("Close on a full disk returned nil")
	}
}
