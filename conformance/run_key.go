package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// run2Key has the first of one key's events fail once: those behind it wait
// until it has come again, and another key's do not.
func run2Key(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	var failing, other, all []event.Event
	for i, ev := range e.events(6, "run.key") {
		if i%2 == 0 {
			ev.SetSubject("failing")
			failing = append(failing, ev)
		} else {
			ev.SetSubject("other")
			other = append(other, ev)
		}
		all = append(all, ev)
	}
	e.publish(b, all...)
	var mu sync.Mutex
	var handled []string
	r := e.start(src, func(ctx context.Context, ev event.Event) error {
		mu.Lock()
		defer mu.Unlock()
		handled = append(handled, ev.ID())
		if ev.ID() == failing[0].ID() && reactor.InfoFrom(ctx).Attempt == 1 {
			return reactor.RetryAfter(errors.New("for the suite"), e.AckWait/2)
		}
		return nil
	}, &messaging.Options{Concurrency: 4, Key: event.Event.Subject})
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled) > len(all)
	}
	for end := time.Now().Add(10 * e.AckWait); !enough() && time.Now().Before(end); {
		e.pause(e.AckWait / 50)
	}
	r.stop()

	of := func(list []event.Event) []string {
		return slices.DeleteFunc(slices.Clone(handled), func(id string) bool {
			return !slices.ContainsFunc(list, func(ev event.Event) bool { return ev.ID() == id })
		})
	}
	ids := func(list ...event.Event) (ids []string) {
		for _, ev := range list {
			ids = append(ids, ev.ID())
		}
		return ids
	}
	if got, want := of(failing), ids(append(failing[:1:1], failing...)...); !slices.Equal(got, want) {
		e.failf("the events of a key whose first failed once were handled in the order %q, want %q", got, want)
	}
	if got, want := of(other), ids(other...); !slices.Equal(got, want) {
		e.failf("the events of a key were handled in the order %q, want %q", got, want)
	}
	// Each key has a worker of its own, so either may have begun.
	rest := handled[slices.Index(handled, failing[0].ID())+1:]
	if again := slices.Index(rest, failing[0].ID()); slices.Index(rest, other[2].ID()) > again {
		e.failf("the events of one key waited for another's retry: handled %q, and the retried one is %q", handled, failing[0].ID())
	}
}
