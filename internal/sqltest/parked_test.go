package sqltest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging/outbox"
)

// TestOthersParkedMeanwhile has another process retry two parked events at the
// moment when two others are parked, with sequences of the same sum: what was held
// for one of the first comes after it.
func TestOthersParkedMeanwhile(t *testing.T) {
	t.Parallel() // it mostly waits
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		opts := &outbox.Options{HoldParked: true, Poll: 100 * time.Millisecond}
		ob, elsewhere := newOutbox(t, db, opts), newOutbox(t, db, opts)
		src := open(t, ob)
		ctx := t.Context()
		publish(t, db, ob, newEvent(t, "a1", "a"), newEvent(t, "b1", "b"), newEvent(t, "c1", "c"), newEvent(t, "d1", "d"))
		a, b, c, e := receive(t, src, "a1"), receive(t, src, "b1"), receive(t, src, "c1"), receive(t, src, "d1")
		if err := errors.Join(a.Reject(ctx, "no"), e.Reject(ctx, "no")); err != nil {
			t.Fatal(err)
		}
		stats(t, ob, func(s outbox.Stats) bool { return s.Parked == 2 })
		for i := range 10 { // others go by, until nobody looks back that far
			id := fmt.Sprint("other ", i)
			publish(t, db, ob, newEvent(t, id, "other"))
			if err := receive(t, src, id).Ack(ctx); err != nil {
				t.Fatal(err)
			}
		}
		publish(t, db, ob, newEvent(t, "a2", "a")) // is held
		time.Sleep(300 * time.Millisecond)         // looks are a Poll apart then
		if n, err := elsewhere.Retry(ctx, 1, 4); n != 2 || err != nil {
			t.Fatalf("retry: %d, %v", n, err)
		}
		if err := errors.Join(b.Reject(ctx, "no"), c.Reject(ctx, "no")); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a1", "d1", "a2"} {
			if err := receive(t, src, id).Ack(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}
