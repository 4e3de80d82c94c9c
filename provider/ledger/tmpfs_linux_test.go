package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

// mount mounts a file system in memory, or skips the test.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	// Detached: a process that starts meanwhile may have files of it for a moment.
	t.Cleanup(func() { want(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// TestRealFullDisk publishes to a disk until it is full, with acks between. What
// was acknowledged can be received then and after another Open, once.
func TestRealFullDisk(t *testing.T) {
	for _, megabytes := range []int{24, 40, 64} {
		t.Run(fmt.Sprint(megabytes), func(t *testing.T) {
			dir := mount(t, fmt.Sprintf("size=%dm", megabytes))
			b, err := ledger.Open(dir+"/b", nil)
			want(t, err)
			sub := messaging.Subscription{Name: "s"}
			var told reports
			src, err := b.Subscribe(t.Context(), sub, told.report)
			want(t, err)
			n := 0
			for ; err == nil; n++ {
				e := newEvent(t, fmt.Sprint(n))
				want(t, e.SetData("text/plain", strings.Repeat(fmt.Sprint(n), 5_000)))
				err = b.Publish(t.Context(), e)
			}
			n--
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("after %d events: %v, want %v", n, err, syscall.ENOSPC)
			}
			acked := n / 2
			for i := range acked {
				want(t, receive(t, src, fmt.Sprint(i), 1).Ack(t.Context()))
			}
			if err := b.Close(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Close: %v, want %v", err, syscall.ENOSPC)
			}
			want(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=200m"))
			b, err = ledger.Open(dir+"/b", nil)
			want(t, err)
			src = subscribe(t, b, sub)
			for i := acked; i < n; i++ {
				want(t, receive(t, src, fmt.Sprint(i), 1).Ack(t.Context()))
			}
			publish(t, b, "after")
			for id := ""; id != "after"; { // the event that met the full disk may be there
				d, err := src.Receive(t.Context())
				want(t, err)
				want(t, d.Ack(t.Context()))
				id = d.Value.ID()
			}
			want(t, b.Close())
		})
	}
}

// TestFullDiskAtOpen opens brokers on disks that are too small. That is an error
// or it works, and leaves what can be opened when there is room.
func TestFullDiskAtOpen(t *testing.T) {
	for kilobytes := 4; kilobytes < 1<<16; kilobytes *= 2 {
		dir := mount(t, fmt.Sprintf("size=%dk", kilobytes))
		b, err := ledger.Open(dir+"/b", nil)
		if err == nil {
			publishErr := b.Publish(t.Context(), newEvent(t, "a"))
			closeErr := b.Close()
			t.Logf("%d KiB: opened, publish %v, close %v", kilobytes, publishErr, closeErr)
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d KiB: %v, want %v", kilobytes, err, syscall.ENOSPC)
		}
		want(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=200m"))
		b, err = ledger.Open(dir+"/b", nil)
		want(t, err)
		publish(t, b, "b")
		src := subscribe(t, b, messaging.Subscription{Name: "s"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = src.Receive(ctx)
		cancel()
		want(t, err)
		want(t, b.Close())
	}
}

// TestReadOnlyDisk opens a broker on a disk that can be read only.
func TestReadOnlyDisk(t *testing.T) {
	dir := mount(t, "size=200m")
	b, err := ledger.Open(dir+"/b", nil)
	want(t, err)
	publish(t, b, "a")
	want(t, b.Close())
	want(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=200m"))
	if _, err = ledger.Open(dir+"/b", nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("Open on a disk that can be read only: %v, want %v", err, syscall.EROFS)
	}
	if _, err = ledger.Open(dir+"/new", nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("Open on a disk that can be read only: %v, want %v", err, syscall.EROFS)
	}
	want(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=200m"))
	b, err = ledger.Open(dir+"/b", nil)
	want(t, err)
	receive(t, subscribe(t, b, messaging.Subscription{Name: "s"}), "a", 1)
	want(t, b.Close())
}
