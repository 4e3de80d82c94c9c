package memory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// TestExpiredAreForgotten holds the broker to keeping nothing of subscriptions
// that have expired: a service that makes a new name at each start would fill
// it up.
func TestExpiredAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		for i := range 1000 {
			src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: fmt.Sprint(i), Expires: time.Second}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := src.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if len(b.consumers) != 1 || len(b.log.consumers) != 1 || len(b.dead) != 1 {
			t.Errorf("%d consumers, %d of the log, %d dead letter logs; want the last of each",
				len(b.consumers), len(b.log.consumers), len(b.dead))
		}
	})
}
