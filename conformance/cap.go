package conformance

import (
	"errors"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

var capChecks = map[string][]check{
	"CAP-1": {
		{name: "positions", do: cap1Positions, unless: Positions},
		{name: "expires", do: cap1Expires, unless: Expires},
		{name: "nothing_undeclared", do: cap1Nothing, needs: Positions | Expires},
	},
}

func cap1Positions(e *env) {
	b := e.open()
	e.publish(b, e.event("cap.positions"))
	for _, start := range []messaging.Start{
		messaging.StartFrom(1), messaging.StartFrom(0), messaging.StartAt(time.Now().Add(-time.Hour)),
	} {
		sub := e.sub()
		sub.Start = start
		e.unsupported(b, sub)
	}
}

func cap1Expires(e *env) {
	sub := e.sub()
	sub.Expires = time.Hour
	e.unsupported(e.open(), sub)
}

// unsupported ends the check unless the subscription is refused, and not made.
func (e *env) unsupported(b Broker, sub messaging.Subscription) {
	e.refused(b, sub, errors.ErrUnsupported)
	sub.Start, sub.Expires, sub.MaxInFlight = messaging.StartFirst(), 0, 3
	e.closing(e.subscribe(b, sub))
}

// A provider that offers all that can be asked for has nothing to refuse.
func cap1Nothing(e *env) {
	sub := e.sub()
	sub.Start, sub.Expires = messaging.StartFrom(1), time.Hour
	b := e.open()
	ev := e.event("cap.all")
	e.publish(b, ev)
	e.accept(e.subscribe(b, sub), ev)
}
