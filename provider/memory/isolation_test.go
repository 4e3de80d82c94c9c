package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// vandalise changes all of an event that can be changed in place.
func vandalise(t *testing.T, e event.Event) {
	t.Helper()
	e.SetID("changed")
	e.SetType("changed")
	e.SetSource("/changed")
	e.SetSubject("changed")
	e.SetTime(time.Time{})
	e.SetExtension("note", "changed")
	e.SetExtension("more", "changed")
	for i := range e.Data() {
		e.Data()[i] = '#'
	}
}

// TestIsolation holds an event to what it was when it was published, whatever
// the publisher and those who received it do to theirs [EVT-4, EVT-5].
func TestIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		one := subscribe(t, b, messaging.Subscription{Name: "one"})
		two := subscribe(t, b, messaging.Subscription{Name: "two"})
		e := newEvent(t, "a")
		e.SetExtension("note", []byte("bytes"))
		want(t, e.SetData("text/plain", []byte("data")))
		before := event.Clone(e)
		want(t, b.Publish(t.Context(), e))
		vandalise(t, e)
		check := func(d *messaging.Delivery) {
			t.Helper()
			if !event.Equal(d.Value, before) {
				t.Errorf("received\n%v\nwant\n%v", d.Value, before)
			}
			vandalise(t, d.Value)
		}
		d := receive(t, one, "a", 1)
		check(d)
		want(t, d.Retry(t.Context(), 0))
		d = receive(t, one, "a", 2)
		check(d)
		want(t, d.Reject(t.Context(), "no"))
		check(receive(t, two, "a", 1))
		letters := subscribe(t, b, messaging.Subscription{Name: "letters", DeadLettersOf: "one"})
		check(receive(t, letters, "a", 1))
	})
}
