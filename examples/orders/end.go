package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// stalled is how long nothing may happen once everything is published.
const stalled = time.Minute

// watch returns nil when everything was fed and nothing is left to do, and else
// why it does not wait for that.
func (s *shop) watch(ctx context.Context, b messaging.Broker, services []service, fed <-chan struct{}) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	tell := time.NewTicker(time.Second)
	defer tell.Stop()
	moves, moved := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tell.C:
			s.out.Printf("%4.0fs  %s", time.Since(s.began).Seconds(), s.tally.progress())
		case <-look.C:
			if !done(fed) {
				continue
			}
			if n := s.tally.movement(); n != moves {
				moves, moved = n, time.Now()
				continue
			}
			if idle(ctx, b, services) {
				found, err := s.missing(ctx, b)
				if err != nil && ctx.Err() == nil {
					return err
				}
				if s.tally.movement() == moves {
					s.tally.elsewhere(found)
					return context.Cause(ctx)
				}
			}
			if time.Since(moved) > stalled {
				return fmt.Errorf("nothing has happened for %v", stalled)
			}
		}
	}
}

func done(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// idle reports whether nothing waits for a service.
func idle(ctx context.Context, b messaging.Broker, services []service) bool {
	left, err := backlog(ctx, b)
	for _, svc := range services {
		if left[svc.sub.Name] > 0 {
			return false
		}
	}
	return err == nil
}

// missing looks for what was published and did not come, although nothing waits,
// and returns what of it stands in the log: an earlier run had published it, so
// that this time it was a duplicate, or another process with the same services
// has taken it. What is not in the log is lost.
func (s *shop) missing(ctx context.Context, b messaging.Broker) (map[key]bool, error) {
	lost := s.tally.unsettled()
	if len(lost) == 0 {
		return nil, nil
	}
	// A duplicate's first is no older than that, but for the clocks.
	return stored(ctx, b, s.began.Add(-messaging.DefaultDuplicates-time.Minute), lost)
}

// remains says what is left for the next run, and what is dead.
func (s *shop) remains(ctx context.Context, b messaging.Broker, services []service) error {
	errs := make([]error, len(services))
	letters := make([][]deadLetter, len(services))
	var wait sync.WaitGroup
	for i, svc := range services {
		wait.Go(func() { letters[i], errs[i] = deadLetters(ctx, b, svc.sub.Name) })
	}
	wait.Wait()
	left, err := backlog(ctx, b)
	errs = append(errs, err)
	for i, svc := range services {
		if n := left[svc.sub.Name]; n > 0 {
			s.out.Printf("%s: %d events are left for the next run", svc.sub.Name, n)
		}
		const most = 20
		for _, l := range letters[i][:min(most, len(letters[i]))] {
			s.out.Printf("%s: dead letter: %s %q, attempt %d: %s", svc.sub.Name, l.event.Type(), l.event.ID(), l.detail.Attempts, l.detail.Reason)
		}
		if more := len(letters[i]) - most; more > 0 {
			s.out.Printf("%s: and %d dead letters more", svc.sub.Name, more)
		}
	}
	return errors.Join(errs...)
}
