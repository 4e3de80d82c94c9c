package conformance

import (
	"context"

	"github.com/catchment-events/catchment/messaging"
)

// asks are the calls of an Admin about one subscription, by name.
var asks = []struct {
	name string
	ask  func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error
}{
	{"Seek", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		return a.Seek(ctx, sub, messaging.StartFirst())
	}},
	{"Update", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		return a.Update(ctx, sub)
	}},
	{"Delete", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		_, err := a.Delete(ctx, sub)
		return err
	}},
	{"DeleteDeadLetters", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		_, err := a.DeleteDeadLetters(ctx, sub.Name)
		return err
	}},
	{"Undecodable", func(ctx context.Context, a messaging.Admin, sub messaging.Subscription) error {
		_, err := a.Undecodable(ctx, sub.Name)
		return err
	}},
}

func adm1NotFound(e *env) {
	b, a := e.openAdmin()
	sub := e.sub()
	e.subscribe(b, sub)
	unknown := e.sub()
	for _, ask := range asks {
		ctx, cancel := e.settling(ask.name)
		e.is(ask.ask(ctx, a, unknown), messaging.ErrNotFound, "%s of a subscription that does not exist", ask.name)
		cancel()
	}
	// A subscription is known by both of its names.
	wrong := []messaging.Subscription{e.dead(sub), e.dead(unknown)}
	wrong[1].Name = sub.Name
	for _, other := range wrong {
		for _, ask := range asks[:3] {
			ctx, cancel := e.settling(ask.name)
			e.is(ask.ask(ctx, a, other), messaging.ErrNotFound, "%s of %q, which reads no dead letters of %q", ask.name, other.Name, other.DeadLettersOf)
			cancel()
		}
	}
	if all := e.list(a); len(all) != 1 {
		e.failf("what looks for subscriptions that do not exist has made some: %+v", all)
	}
}

// Refusals come in this order: closed, context done, invalid. They do nothing.
func adm1Refusals(e *env) {
	b, a := e.openAdmin()
	sub := e.sub("adm.refused")
	src := e.subscribe(b, sub)
	events := e.events(3, "adm.refused")
	e.publish(b, events...)
	e.accept(src, events[0])
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	invalid := sub
	invalid.MaxInFlight = -1
	list := func(ctx context.Context) error { _, err := a.Subscriptions(ctx); return err }
	for _, ask := range asks {
		e.is(ask.ask(done, a, sub), context.Canceled, "%s with a context that is done", ask.name)
	}
	e.is(list(done), context.Canceled, "Subscriptions with a context that is done")
	e.is(a.Update(done, invalid), context.Canceled, "Update with bad settings and a context that is done")
	e.settings(a, sub)
	e.accept(src, events[1:]...)
	e.closing(b)
	for _, ask := range asks {
		e.is(ask.ask(done, a, sub), messaging.ErrClosed, "%s on a closed broker with a context that is done", ask.name)
	}
	e.is(list(e.ctx), messaging.ErrClosed, "Subscriptions on a closed broker")
	e.is(a.Update(e.ctx, invalid), messaging.ErrClosed, "Update on a closed broker with bad settings")
}
