package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// TestWaitingForTypes has many subscriptions wait for events of some types, and
// holds each publish to waking exactly those that want it, also after their types
// have changed.
func TestWaitingForTypes(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { waitForTypes(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func waitForTypes(t *testing.T, random *rand.Rand) {
	b := New(nil)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	types := func() []string {
		return [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"*"}, {"a.>"}, {"c.*"}, {"a", "c.1"}}[random.IntN(8)]
	}
	receivers := make(map[string]int)
	for i := range 30 {
		sub := messaging.Subscription{Name: fmt.Sprint(i), Types: types()}
		src, err := b.Subscribe(ctx, sub, nil)
		if err != nil {
			t.Fatal(err)
		}
		receivers[sub.Name] = random.IntN(3)
		for range receivers[sub.Name] {
			group.Go(func() {
				for {
					d, err := src.Receive(ctx)
					if err != nil {
						return
					}
					if err := d.Ack(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	for step := range 200 {
		for range 1 + random.IntN(3) {
			var events []event.Event
			for i := range 1 + random.IntN(3) {
				e, err := event.New("/test", []string{"a", "b", "a.b", "c.1", fmt.Sprint("x", step)}[random.IntN(5)], nil)
				if err != nil {
					t.Fatal(err)
				}
				e.SetSubject(fmt.Sprint(i))
				events = append(events, e)
			}
			group.Go(func() { _ = b.Publish(ctx, events...) })
		}
		if random.IntN(3) == 0 {
			sub := messaging.Subscription{Name: fmt.Sprint(random.IntN(30)), Types: types()}
			group.Go(func() { _ = b.Update(ctx, sub) })
		}
		if random.IntN(2) == 0 {
			synctest.Wait()
		}
		if random.IntN(10) > 0 {
			continue
		}
		synctest.Wait()
		for id, c := range b.consumers {
			if err := c.check(receivers[id.name]); err != nil {
				t.Fatalf("step %d, subscription %s to %v: %v", step, id.name, c.sub.Types, err)
			}
		}
	}
	cancel()
	group.Wait()
	if b.log.waiting.first != nil || b.log.waiting.last != nil {
		t.Error("somebody is listed as waiting")
	}
}

// TestWaitingIsSeenThroughout moves somebody who waits to the end of the list, again
// and again, while a Publish looks whether anybody does.
func TestWaitingIsSeenThroughout(t *testing.T) {
	var l waitingList
	c := new(consumer)
	l.push(c)
	moved, seen := make(chan struct{}), make(chan bool)
	go func() {
		all := true
		for {
			select {
			case <-moved:
				seen <- all
				return
			default:
			}
			for range 1000 {
				all = all && l.some.Load()
			}
		}
	}()
	for range 1_000_000 {
		l.push(c)
	}
	close(moved)
	if !<-seen {
		t.Error("for a moment nobody seemed to wait")
	}
	if l.remove(c); l.some.Load() {
		t.Error("somebody seems to wait")
	}
}

// TestManyTypesAreForgotten holds what is remembered about types to a bound.
func TestManyTypesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", Types: []string{"none"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = src.Receive(t.Context()) }()
		synctest.Wait()
		for i := range 3 * mostAsked {
			e, err := event.New("/test", fmt.Sprint("type", i), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if n := len(b.log.waiting.asked); n > mostAsked {
				t.Fatalf("%d types are remembered", n)
			}
		}
	})
}
