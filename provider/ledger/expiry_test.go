package ledger_test

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

// TestExpiresCountsFromTheKill holds a subscription that had a member all along
// to the whole of Expires after the process was killed: when its last member
// before that one left, or when it was made, is of no importance [SUB-10].
func TestExpiresCountsFromTheKill(t *testing.T) {
	for name, rejoin := range map[string]bool{"first member": false, "member that came back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, ledger.Options{})
				sub := messaging.Subscription{Name: "s", Expires: time.Hour}
				src := subscribe(t, b, sub)
				if rejoin {
					want(t, src.Close())
					time.Sleep(time.Minute)
					subscribe(t, b, sub)
				}
				time.Sleep(10 * time.Hour)
				b = kill(t, b, ledger.Options{})
				time.Sleep(time.Hour - 1)
				if all, err := b.Subscriptions(t.Context()); err != nil || len(all) != 1 {
					t.Fatalf("an hour less a nanosecond after the kill there are %d subscriptions, %v, want 1", len(all), err)
				}
				time.Sleep(time.Nanosecond)
				if all, err := b.Subscriptions(t.Context()); err != nil || len(all) != 0 {
					t.Fatalf("an hour after the kill there are %d subscriptions, %v, want none", len(all), err)
				}
			})
		})
	}
}

// TestExpiresCountsFromTheBlackout takes the power from a subscription that has just
// got a member again: it is not deleted for the time before that [SUB-10].
func TestExpiresCountsFromTheBlackout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, ledger.Options{})
		sub := messaging.Subscription{Name: "s", Expires: time.Hour, Start: messaging.StartNew()}
		want(t, subscribe(t, b, sub).Close())
		publish(t, b, "a")
		time.Sleep(59 * time.Minute)
		subscribe(t, b, sub)
		b = blackout(t, b, ledger.Options{})
		time.Sleep(2 * time.Minute)
		receive(t, subscribe(t, b, sub), "a", 1)
	})
}

// TestMemberThatCannotBeKept lets the disk be full when a subscription that expires
// gets a member again: Subscribe says so, and there is no member.
func TestMemberThatCannotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &full{text: "journal"}
		b := openIn(t, errorfs.Wrap(vfs.NewCrashableMem(), disk), "dir", ledger.Options{})
		sub := messaging.Subscription{Name: "s", Expires: time.Hour}
		want(t, subscribe(t, b, sub).Close())
		disk.on.Store(true)
		if _, err := b.Subscribe(t.Context(), sub, nil); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Subscribe on a full disk: %v, want one that wraps %v", err, syscall.ENOSPC)
		}
		if n := status(t, b, "s").Members; n != 0 {
			t.Errorf("%d members, want none", n)
		}
		disk.on.Store(false)
		subscribe(t, b, sub)
	})
}
