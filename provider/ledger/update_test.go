package ledger_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

// TestExtendWithShorterAckWait extends a delivery after an Update, which makes its
// deadline earlier: who waits gets the event then [ACK-2].
func TestExtendWithShorterAckWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, ledger.Options{})
		sub := messaging.Subscription{Name: "s", AckWait: time.Hour}
		src := subscribe(t, b, sub)
		publish(t, b, "a")
		d := receive(t, src, "a", 1)
		var came time.Duration
		began := time.Now()
		var work sync.WaitGroup
		work.Go(func() {
			d, err := src.Receive(t.Context())
			if err != nil || d.Info.Attempt != 2 {
				t.Error(d, err)
			}
			came = time.Since(began)
		})
		synctest.Wait()
		sub.AckWait = time.Second
		want(t, b.Update(t.Context(), sub))
		_, err := d.Extend(t.Context())
		want(t, err)
		work.Wait()
		if came != time.Second {
			t.Errorf("came after %v", came)
		}
	})
}

// TestChangesComeAfterFailures changes a subscription after a delivery has failed for
// the last time, before anybody looked: the event is a dead letter [DLQ-1].
func TestChangesComeAfterFailures(t *testing.T) {
	for name, change := range map[string]func(*ledger.Broker, messaging.Subscription) error{
		"seek": func(b *ledger.Broker, sub messaging.Subscription) error {
			return b.Seek(context.Background(), sub, messaging.StartNew())
		},
		"update": func(b *ledger.Broker, sub messaging.Subscription) error {
			sub.MaxAttempts = 2
			return b.Update(context.Background(), sub)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, ledger.Options{})
				sub := messaging.Subscription{Name: "s", MaxAttempts: 1, AckWait: time.Second}
				src := subscribe(t, b, sub)
				publish(t, b, "a")
				receive(t, src, "a", 1)
				time.Sleep(time.Second)
				want(t, change(b, sub))
				receive(t, subscribe(t, b, messaging.Subscription{Name: "d", DeadLettersOf: "s"}), "a", 1)
				nothing(t, src, time.Hour)
			})
		})
	}
}
