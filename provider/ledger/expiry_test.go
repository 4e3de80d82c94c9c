package ledger_test

import (
	"testing"
	"testing/synctest"
	"time"

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
