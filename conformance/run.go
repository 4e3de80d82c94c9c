package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// runChecks run the reactor over the broker under test, and over a fake.
var runChecks = func() map[string][]check {
	all := map[string][]check{
		"RUN-1": {
			{name: "outcomes", do: run1},
			{name: "react", do: run1React},
		},
		"RUN-2": {{name: "concurrency", do: run2}, {name: "key", do: run2Key}},
		"RUN-3": {
			{name: "drain", do: run3Drain},
			{name: "timeout", do: run3Timeout},
		},
		"RUN-4": {
			{name: "extended", do: run4},
			{name: "second_try", do: run4Again},
			{name: "until_settled", do: run4Settling},
			{name: "while_draining", do: run4Draining},
		},
		"RUN-5": {
			{name: "info", do: run5Info},
			{name: "lost", do: run5Lost},
			{name: "lost_before_its_deadline", do: run5Gone},
			{name: "given_back", do: run5GivenBack},
		},
		"RUN-6": {
			{name: "panic", do: run6},
			{name: "recover", do: run6Recover},
		},
		"RUN-7": {{name: "default_backoff", do: run7}},
		"RUN-8": {{name: "ends", do: run8}},
		"RUN-9": {
			{name: "settled_later", do: run9},
			{name: "never_settled", do: run9Never},
		},
	}
	var onFake []check
	for n := 1; n <= 9; n++ {
		id := fmt.Sprintf("RUN-%d", n)
		for _, c := range all[id] {
			onFake = append(onFake, check{
				name: id + "_" + c.name, fake: true,
				do: func(e *env) {
					e.openBroker = e.openFake
					e.Slack = 0
					c.do(e)
				},
			})
		}
	}
	all["RUN-10"] = onFake
	return all
}()

// lenient is d on a clock that other things slow down.
func (e *env) lenient(d time.Duration) time.Duration {
	if e.Bubble {
		return d + e.Slack
	}
	return d + e.Slack + e.prompt()
}

func run2(e *env) {
	for _, c := range []struct{ concurrency, maxInFlight, want int }{
		{0, 0, 1}, {1, 0, 1}, {3, 0, 3}, {20, 2, 2}, {4, 4, 4},
	} {
		b := e.open()
		sub := e.sub()
		sub.MaxInFlight = c.maxInFlight
		src := e.subscribe(b, sub)
		e.publish(b, e.events(20, "run.many")...)
		var mu sync.Mutex
		inside, most := 0, 0
		var handled calls
		r := e.start(src, func(ctx context.Context, ev event.Event) error {
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			defer func() {
				mu.Lock()
				inside--
				mu.Unlock()
			}()
			// Wait for the others, if there may be any, and for one too many.
			for end := time.Now().Add(e.AckWait / 2); time.Now().Before(end); {
				time.Sleep(e.AckWait / 200)
				mu.Lock()
				enough := most >= c.want && handled.len() > 0
				mu.Unlock()
				if enough {
					break
				}
			}
			time.Sleep(e.AckWait / 100) // stands for work
			handled.add(ctx, ev)
			return nil
		}, &messaging.Options{Concurrency: c.concurrency})
		for end := time.Now().Add(30 * e.AckWait); handled.len() < 20 && time.Now().Before(end); {
			e.pause(e.AckWait / 50)
		}
		r.stop()
		if handled.len() != 20 {
			e.failf("%d of 20 events were handled with Concurrency %d and MaxInFlight %d", handled.len(), c.concurrency, c.maxInFlight)
		}
		if most != c.want {
			e.failf("%d handlers ran at once with Concurrency %d and MaxInFlight %d, want %d", most, c.concurrency, c.maxInFlight, c.want)
		}
	}
}

// errTemporary is what a broker out of reach answers.
var errTemporary = errors.New("the broker is away")
