package conformance

import (
	"context"

	"github.com/catchment-events/catchment/messaging"
)

// bentAdmin is an Admin that works, with some of what it does replaced.
type bentAdmin struct {
	messaging.Admin
	status  func(*messaging.Status)
	list    func([]messaging.Status) []messaging.Status
	seek    func(ctx context.Context, sub messaging.Subscription, to messaging.Start) error
	update  func(ctx context.Context, sub messaging.Subscription) error
	delete  func(ctx context.Context, sub messaging.Subscription) (uint64, error)
	letters func(ctx context.Context, name string) (uint64, error)
	raw     func(ctx context.Context, name string) ([]*messaging.DecodeError, error)
}

func (a *bentAdmin) Subscriptions(ctx context.Context) ([]messaging.Status, error) {
	all, err := a.Admin.Subscriptions(ctx)
	if a.list != nil {
		all = a.list(all)
	}
	if a.status != nil {
		for i := range all {
			a.status(&all[i])
		}
	}
	return all, err
}

func (a *bentAdmin) Seek(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
	if a.seek != nil {
		return a.seek(ctx, sub, to)
	}
	return a.Admin.Seek(ctx, sub, to)
}

func (a *bentAdmin) Update(ctx context.Context, sub messaging.Subscription) error {
	if a.update != nil {
		return a.update(ctx, sub)
	}
	return a.Admin.Update(ctx, sub)
}

func (a *bentAdmin) Delete(ctx context.Context, sub messaging.Subscription) (uint64, error) {
	if a.delete != nil {
		return a.delete(ctx, sub)
	}
	return a.Admin.Delete(ctx, sub)
}

func (a *bentAdmin) DeleteDeadLetters(ctx context.Context, name string) (uint64, error) {
	if a.letters != nil {
		return a.letters(ctx, name)
	}
	return a.Admin.DeleteDeadLetters(ctx, name)
}

func (a *bentAdmin) Undecodable(ctx context.Context, name string) ([]*messaging.DecodeError, error) {
	if a.raw != nil {
		return a.raw(ctx, name)
	}
	return a.Admin.Undecodable(ctx, name)
}

// administers bends the Admin.
func administers(bend func(*bentAdmin)) func(*bent) {
	return func(b *bent) {
		b.admin = func(a messaging.Admin) messaging.Admin {
			out := &bentAdmin{Admin: a}
			bend(out)
			return out
		}
	}
}

// lists changes what is told of each subscription.
func lists(change func(*messaging.Status)) func(*bent) {
	return administers(func(a *bentAdmin) { a.status = change })
}

// seeks seeks elsewhere.
func seeks(elsewhere func(messaging.Start) messaging.Start) func(*bent) {
	return administers(func(a *bentAdmin) {
		a.seek = func(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
			return a.Admin.Seek(ctx, sub, elsewhere(to))
		}
	})
}

// updates updates to something else.
func updates(change func(*messaging.Subscription)) func(*bent) {
	return administers(func(a *bentAdmin) {
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			change(&sub)
			return a.Admin.Update(ctx, sub)
		}
	})
}

// current returns the settings that a subscription has.
func current(ctx context.Context, a messaging.Admin, sub messaging.Subscription) messaging.Subscription {
	all, _ := a.Subscriptions(ctx)
	for _, s := range all {
		if s.Name == sub.Name && s.DeadLettersOf == sub.DeadLettersOf {
			return s.Subscription
		}
	}
	return sub
}

// updatesAllBut leaves one setting as it was.
func updatesAllBut(keep func(have, want *messaging.Subscription)) func(*bent) {
	return administers(func(a *bentAdmin) {
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			have := current(ctx, a.Admin, sub)
			keep(&have, &sub)
			return a.Admin.Update(ctx, sub)
		}
	})
}

// rawWith changes each message that did not decode.
func rawWith(change func(*messaging.DecodeError)) func(*bent) {
	return administers(func(a *bentAdmin) {
		a.raw = func(ctx context.Context, name string) ([]*messaging.DecodeError, error) {
			all, err := a.Admin.Undecodable(ctx, name)
			for _, d := range all {
				change(d)
			}
			return all, err
		}
	})
}

// reports changes each report.
func reports(change func(error) error) func(*bent) {
	return func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			return b.Broker.Subscribe(ctx, sub, func(ctx context.Context, err error) { report.Do(ctx, change(err)) })
		}
	}
}
