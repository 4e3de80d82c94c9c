package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestFairness holds the members of a subscription to all getting something,
// however quickly one of them acks and receives again [SUB-5].
func TestFairness(t *testing.T) {
	for _, members := range []int{2, 5} {
		for _, maxInFlight := range []int{1, 2, 1024} {
			t.Run(fmt.Sprintf("members=%d MaxInFlight=%d", members, maxInFlight), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { fairness(t, members, maxInFlight) })
			})
		}
	}
}

func fairness(t *testing.T, members, maxInFlight int) {
	const each = 40
	b := memory.New(nil)
	sub := messaging.Subscription{Name: "s", MaxInFlight: maxInFlight}
	for i := range members * each {
		publish(t, b, fmt.Sprint(i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	got := make([]int, members)
	for i := range members {
		src := subscribe(t, b, sub)
		go func() {
			for {
				d, err := src.Receive(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				got[i]++
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				_ = d.Ack(ctx)
			}
		}()
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	cancel()
	for _, n := range got {
		if n < each/2 {
			t.Errorf("the members got %d, want %d each or nearly", got, each)
			break
		}
	}
}
