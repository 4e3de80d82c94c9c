package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

// TestAdminUnderLoad lets everything that Admin can do meet members at work, on
// journals that end all the time. Nobody meets an error that is not said to be
// possible, what a member has is with nobody else, reports may call the broker,
// and in the end, also after an Open, each event arrives.
func TestAdminUnderLoad(t *testing.T) {
	fs, dir := inMemory(t)
	opts := ledger.Options{MaxDeadLetters: 20, AckDelay: time.Millisecond, Duplicates: time.Hour}.Rotating(500)
	b := openIn(t, fs, dir, opts)
	sub := messaging.Subscription{Name: "s", MaxAttempts: 3, MaxInFlight: 20, AckWait: 50 * time.Millisecond}
	dead := messaging.Subscription{Name: "d", DeadLettersOf: "s"}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	var work sync.WaitGroup
	var published atomic.Int64
	check := func(what string, err error, allowed ...error) {
		for _, a := range append(allowed, context.DeadlineExceeded) {
			if errors.Is(err, a) {
				return
			}
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	report := func(context.Context, error) {
		_, err := b.Subscriptions(ctx)
		check("Subscriptions in a report", err)
	}
	work.Go(func() {
		for ctx.Err() == nil {
			publish(t, b, fmt.Sprint(published.Load()))
			published.Add(1)
		}
	})
	for _, s := range []messaging.Subscription{sub, sub, dead} {
		work.Go(func() {
			for ctx.Err() == nil {
				src, err := b.Subscribe(ctx, s, report)
				check("Subscribe", err, messaging.ErrConflict, messaging.ErrNotFound)
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				for range rand.IntN(300) {
					d, err := src.Receive(ctx)
					check("Receive", err, messaging.ErrNotFound)
					if err != nil {
						break
					}
					switch rand.IntN(8) {
					case 0:
						err = d.Retry(t.Context(), time.Duration(rand.IntN(3))*time.Millisecond)
					case 1:
						err = d.Reject(t.Context(), "why")
					case 2:
						err = d.Release(t.Context())
					case 3:
						// kept until it is lost, or the source closes
					default:
						err = d.Ack(t.Context())
					}
					check("settle", err, messaging.ErrLost)
				}
				check("Close", src.Close())
			}
		})
	}
	work.Go(func() {
		for ctx.Err() == nil {
			changed := sub
			var err error
			switch rand.IntN(6) {
			case 0:
				err = b.Seek(ctx, sub, messaging.StartNew())
			case 1:
				err = b.Seek(ctx, dead, messaging.StartFirst())
			case 2:
				changed.MaxInFlight = 1 + rand.IntN(3)
				err = b.Update(ctx, changed)
				check("Update", b.Update(t.Context(), sub), messaging.ErrNotFound) // also when the time is up
			case 3:
				_, err = b.Delete(ctx, sub)
			case 4:
				_, err = b.DeleteDeadLetters(ctx, "s")
			case 5:
				_, err = b.Delete(ctx, dead)
			}
			check("Admin", err, messaging.ErrNotFound)
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		}
	})
	work.Wait()
	_, err := b.DeleteDeadLetters(t.Context(), "s")
	check("DeleteDeadLetters", err, messaging.ErrNotFound)
	_, err = b.Subscribe(t.Context(), sub, nil)
	want(t, err)
	want(t, b.Seek(t.Context(), sub, messaging.StartFirst()))
	want(t, b.Close())
	b = openIn(t, fs, dir, opts)
	src := subscribe(t, b, sub)
	for i := range published.Load() {
		want(t, receive(t, src, fmt.Sprint(i), 1).Ack(t.Context()))
	}
}
