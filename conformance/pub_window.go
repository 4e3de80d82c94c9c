package conformance

import (
	"slices"
	"time"

	"github.com/catchment-events/catchment/event"
)

func pub3Window(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ev := e.event("pub.window")
	before := time.Now()
	e.publish(b, ev)
	stored := time.Now()
	e.accept(src, ev)
	e.pause(e.Duplicates / 2)
	e.publish(b, ev)
	end := before.Add(e.Duplicates - 1)
	if !e.Bubble {
		end = before.Add(e.Duplicates * 3 / 4)
	}
	e.pause(time.Until(end))
	e.publish(b, ev)
	e.given("when %q had been published again %v after the first time, and in between", ev.ID(), time.Since(stored))
	if e.Bubble || time.Since(before) < e.Duplicates {
		e.fence(b, src, "pub.window")
	}
	e.given("when %q had been published again after the window", ev.ID())
	// None of this has extended the window.
	e.pause(time.Until(stored.Add(e.Duplicates + time.Second)))
	e.publish(b, ev)
	e.accept(src, ev)
}

func pub4(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	ev, other := e.event("pub.after"), e.event("pub.after")
	e.publish(b, ev, other)
	stored := time.Now()
	e.accept(src, ev, other)
	for range 2 {
		e.pause(time.Until(stored.Add(e.Duplicates + time.Second)))
		e.publish(b, ev)
		stored = time.Now()
		e.accept(src, ev)
		e.publish(b, ev) // which begins a window of its own
		e.given("when %q had been published again after the window, and then once more", ev.ID())
		e.fence(b, src, "pub.after")
	}
	late := e.subscribe(b, e.sub("pub.after"))
	e.accept(late, ev, other, ev)
}

// A window with many ids in it knows each of them, and each has a window of its
// own: of those that were stored in three lots, the first leaves it first.
func pub3Many(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	publish := func(events []event.Event) { e.publishIn(b, 250, events) }
	many := 100
	if !e.Bubble {
		many = 20
	}
	first, second, third := e.events(7*many, "pub.many"), e.events(11*many, "pub.many"), e.events(17*many, "pub.many")
	began := time.Now()
	publish(first)
	firstStored := time.Now()
	e.accept(src, first...)
	e.pause(time.Until(began.Add(e.Duplicates / 2)))
	secondBegan := time.Now()
	publish(second)
	secondStored := time.Now()
	again := append(slices.Clone(second), first...)
	slices.Reverse(again)
	publish(again)
	if !e.Bubble && time.Since(began) >= e.Duplicates {
		return // some may have been published after the window
	}
	e.given("when %d ids had been published again within the window", len(again))
	e.accept(src, second...)
	e.fence(b, src, "pub.many")

	e.pause(time.Until(firstStored.Add(e.Duplicates + time.Second)))
	slices.Reverse(first)
	began = time.Now()
	publish(first)
	publish(third)
	e.given("when %d ids had been published again after the window, beside others", len(first))
	e.accept(src, first...)
	e.accept(src, third...)
	publish(first)
	publish(third)
	if !e.Bubble && time.Since(began) >= e.Duplicates {
		return
	}
	if e.Bubble && time.Since(secondBegan) < e.Duplicates {
		publish(second)
		e.fence(b, src, "pub.many")
	}
	e.given("when %d ids had been published again after the window, beside some that were in it anew", len(second))
	e.pause(time.Until(secondStored.Add(e.Duplicates + time.Second)))
	publish(second)
	e.accept(src, second...)
}
