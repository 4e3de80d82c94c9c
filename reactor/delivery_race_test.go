package reactor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// TestSettlesThatRace holds a delivery to one settle of many at once: the
// others wait for its end, and return ErrSettled if it worked [ACK-6].
func TestSettlesThatRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settler{ackWait: time.Minute, onTry: func(_ context.Context, try int) error {
			time.Sleep(time.Second) // the settler is busy, and alone
			if try <= 2 {
				return errors.New("down")
			}
			return nil
		}}
		d := s.delivery()
		var mu sync.Mutex
		results := map[error]int{}
		var group sync.WaitGroup
		for range 25 {
			for _, settle := range ways {
				group.Go(func() {
					err := settle(d, t.Context())
					if err != nil && !errors.Is(err, reactor.ErrSettled) {
						err = context.DeadlineExceeded // stands for down
					}
					mu.Lock()
					defer mu.Unlock()
					results[err]++
				})
			}
		}
		group.Wait()
		if results[nil] != 1 || results[reactor.ErrSettled] != 97 || results[context.DeadlineExceeded] != 2 {
			t.Errorf("results are %v, want one nil, two failures, 97 ErrSettled", results)
		}
		if n := len(s.tried(time.Now())); n != 3 {
			t.Errorf("the settler was called %d times, want 3", n)
		}
	})
}

// TestSettleWhileAnotherHangs holds a settle that waits for its turn to its
// own context and to the deadline.
func TestSettleWhileAnotherHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settler{ackWait: 10 * time.Second, onTry: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		d := s.delivery()
		hanging, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			if err := d.Ack(hanging); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the hanging ack = %v, want its context's error", err)
			}
		})
		synctest.Wait()
		began := time.Now()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Ack(impatient); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("the impatient ack = %v after %v, want its context's error after 1s", err, time.Since(began))
		}
		if err := d.Ack(t.Context()); err != reactor.ErrLost || time.Since(began) != 30*time.Second {
			t.Errorf("the patient ack = %v after %v, want ErrLost after 30s", err, time.Since(began))
		}
		group.Wait()
	})
}

// TestExtendsThatRace holds extends and settles to one at a time, and every
// caller to a sensible answer; run with -race.
func TestExtendsThatRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		inside := 0
		alone := func(context.Context, int) error {
			mu.Lock()
			inside++
			if inside > 1 {
				t.Error("two calls of the settler at once")
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			inside--
			mu.Unlock()
			return nil
		}
		s := &settler{ackWait: time.Minute, onTry: alone, onBeat: alone}
		d := s.delivery()
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				if _, err := d.Extend(t.Context()); err != nil && err != reactor.ErrSettled {
					t.Errorf("Extend = %v", err)
				}
				_ = d.Deadline()
			})
		}
		time.Sleep(3 * time.Millisecond)
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("Ack = %v, want nil", err)
		}
		group.Wait()
	})
}
