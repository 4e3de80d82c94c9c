package conformance

import (
	"errors"

	"github.com/catchment-events/catchment/messaging"
)

// besides is how often two calls are made at a time.
const besides = 20

// An Update beside a Seek: both are done.
func adm4Seek(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	src := e.subscribe(b, sub)
	for i := range besides {
		sub.MaxAttempts = i + 1
		sought := e.async(func() { e.seek(a, sub, messaging.StartFirst()) })
		e.update(a, sub)
		sought()
		e.settings(a, sub)
	}
	ev := e.event("adm.beside")
	e.publish(b, ev)
	d := e.noticed(src, "the settings of the last Update", func(d *messaging.Delivery) bool { return d.Info.MaxAttempts == besides })
	e.same(d, ev)
}

// A Delete beside a Seek: it is gone, whichever came first.
func adm3Seek(e *env) {
	b, a := e.openAdmin()
	for range besides {
		sub := e.sub()
		e.closing(e.subscribe(b, sub))
		sought := e.async(func() {
			if err := e.trySeek(a, sub, messaging.StartFirst()); !errors.Is(err, messaging.ErrNotFound) {
				e.ok(err, "Seek of a subscription that is being deleted")
			}
		})
		e.delete(a, sub)
		sought()
		e.gone(a, sub)
	}
}
