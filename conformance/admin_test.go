package conformance

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

var adminFaults = []fault{
	// ADM-1.
	{name: "lists no defaults", breaks: "ADM-1/settings", wrap: lists(func(s *messaging.Status) {
		if s.MaxInFlight == messaging.DefaultMaxInFlight {
			s.MaxInFlight = 0
		}
	})},
	{name: "lists no dead-letter subscriptions", breaks: "ADM-1/settings ADM-1/dead_letters ADM-4/dead_letters", wrap: administers(func(a *bentAdmin) {
		a.list = func(all []messaging.Status) []messaging.Status {
			return slices.DeleteFunc(all, func(s messaging.Status) bool { return s.DeadLettersOf != "" })
		}
	})},
	{name: "lists in any order", breaks: "ADM-1/settings", wrap: administers(func(a *bentAdmin) {
		a.list = func(all []messaging.Status) []messaging.Status { slices.Reverse(all); return all }
	})},
	{name: "counts one member", breaks: "ADM-1/members", wrap: lists(func(s *messaging.Status) { s.Members = min(s.Members, 1) })},
	{name: "members below unknown", breaks: "ADM-1/members", wrap: lists(func(s *messaging.Status) { s.Members = -2 })},
	{name: "pending counts all that is unsettled", breaks: "ADM-1/counts ADM-1/dead_letters", wrap: lists(func(s *messaging.Status) { s.Pending += uint64(s.InFlight) })},
	{name: "pending counts every type", breaks: "ADM-1/counts", wrap: func(b *bent) {
		administers(func(a *bentAdmin) {
			a.status = func(s *messaging.Status) { s.Pending = max(s.Pending, uint64(b.n["events"])) }
		})(b)
		b.publish = func(ctx context.Context, events []event.Event) error {
			b.next("events")
			return b.Broker.Publish(ctx, events...)
		}
	}},
	{name: "counts no redelivery", breaks: "ADM-1/counts", wrap: lists(func(s *messaging.Status) { s.Redelivered = 0 })},
	{name: "counts no dead letters", breaks: "ADM-1/counts ADM-1/dead_letters ADM-2/attempts ADM-4/max_attempts", wrap: lists(func(s *messaging.Status) { s.DeadLetters = 0 })},
	{name: "the oldest is the youngest", breaks: "ADM-1/counts", wrap: lists(func(s *messaging.Status) { s.Oldest = time.Now() })},
	{name: "finds what does not exist", breaks: "ADM-1/not_found ADM-3/discarded", wrap: administers(func(a *bentAdmin) {
		a.seek = func(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
			if err := a.Admin.Seek(ctx, sub, to); !errors.Is(err, messaging.ErrNotFound) {
				return err
			}
			return nil
		}
	})},
	{name: "Undecodable of nobody is empty", breaks: "ADM-1/not_found", wrap: administers(func(a *bentAdmin) {
		a.raw = func(ctx context.Context, name string) ([]*messaging.DecodeError, error) {
			all, err := a.Admin.Undecodable(ctx, name)
			if errors.Is(err, messaging.ErrNotFound) {
				return nil, nil
			}
			return all, err
		}
	})},
	{name: "ignores the context of Delete", breaks: "ADM-1/refusals", wrap: administers(func(a *bentAdmin) {
		a.delete = func(ctx context.Context, sub messaging.Subscription) (uint64, error) {
			return a.Admin.Delete(context.WithoutCancel(ctx), sub)
		}
	})},
	{name: "knows subscriptions by one name", breaks: "ADM-1/not_found", wrap: administers(func(a *bentAdmin) {
		a.delete = func(ctx context.Context, sub messaging.Subscription) (uint64, error) {
			all, _ := a.Admin.Subscriptions(ctx)
			for _, s := range all {
				if s.Name == sub.Name || s.Name == sub.DeadLettersOf {
					sub.DeadLettersOf = s.DeadLettersOf
				}
			}
			return a.Admin.Delete(ctx, sub)
		}
	})},

	// ADM-2.
	{
		name: "Seek does nothing", breaks: "ADM-2/back ADM-2/forward ADM-2/stale ADM-2/attempts ADM-2/under_load ADM-2/dead_letters ADM-2/sequence ADM-2/time ACK-1/undone_by_seek DLQ-4/until_a_seek",
		wrap: administers(func(a *bentAdmin) {
			a.seek = func(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
				if t, ok := to.Time(); ok && t.After(time.Now()) {
					return messaging.ErrInvalid
				}
				return nil
			}
		}),
	},
	{name: "Seek goes to the first always", breaks: "ADM-2/forward ADM-2/sequence ADM-2/time", wrap: seeks(func(messaging.Start) messaging.Start { return messaging.StartFirst() })},
	{name: "Seek goes one too far", breaks: "ADM-2/sequence", wrap: seeks(func(s messaging.Start) messaging.Start {
		if n, ok := s.Sequence(); ok {
			return messaging.StartFrom(n + 1)
		}
		return s
	})},
	{name: "Seek goes a nanosecond too far", breaks: "ADM-2/time", wrap: seeks(func(s messaging.Start) messaging.Start {
		if t, ok := s.Time(); ok {
			return messaging.StartAt(t.Add(1))
		}
		return s
	})},
	{name: "Seek goes to the future", breaks: "ADM-2/time", wrap: seeks(func(s messaging.Start) messaging.Start {
		if t, ok := s.Time(); ok && t.After(time.Now()) {
			return messaging.StartNew()
		}
		return s
	})},
	{name: "Seek skips the first", breaks: "ADM-2/back ADM-2/stale ADM-2/under_load ADM-2/dead_letters ACK-1/undone_by_seek", wrap: seeks(func(s messaging.Start) messaging.Start {
		if s == messaging.StartFirst() {
			return messaging.StartFrom(2)
		}
		return s
	})},
	{name: "Seek ends the members", breaks: "ADM-2/back ADM-2/forward ADM-2/under_load", wrap: func(b *bent) {
		var members []messaging.Source
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			src, err := b.Broker.Subscribe(ctx, sub, report)
			b.mu.Lock()
			defer b.mu.Unlock()
			members = append(members, src)
			return src, err
		}
		administers(func(a *bentAdmin) {
			a.seek = func(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, m := range members {
					m.Close()
				}
				return a.Admin.Seek(ctx, sub, to)
			}
		})(b)
	}},
	{name: "attempts go on after a Seek", breaks: "ADM-2/back ADM-2/attempts ADM-3/anew", wrap: func(b *bent) {
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			d.Info.Attempt = b.next("attempt " + s.sub.DeadLettersOf + " " + s.sub.Name + " " + d.Value.ID())
			return d
		}
	}},
	{name: "stale settles return nil", breaks: "ADM-2/forward ADM-2/stale ADM-3/discarded ADM-3/anew", wrap: func(b *bent) {
		b.settle = func(d *bentDelivery, ctx context.Context, o reactor.Outcome) error {
			if err := d.inner.Settle(ctx, o); !errors.Is(err, reactor.ErrLost) {
				return err
			}
			return nil
		}
		b.extend = func(d *bentDelivery, ctx context.Context) (time.Time, error) {
			deadline, err := d.inner.Extend(ctx)
			if errors.Is(err, reactor.ErrLost) {
				return time.Now().Add(d.source.sub.AckWait), nil
			}
			return deadline, err
		}
	}},
	{name: "Seek without positions", breaks: "ADM-2/unsupported", harness: func(h *Harness) { h.Capabilities &^= Positions }},

	// ADM-3.
	{name: "Delete does nothing", breaks: "ADM-3/discarded ADM-3/anew ADM-3/members ADM-3/dead_letters RCV-1/deleted", wrap: administers(func(a *bentAdmin) {
		a.delete = func(context.Context, messaging.Subscription) (uint64, error) { return 0, nil }
	})},
	{name: "Delete counts what is pending", breaks: "ADM-3/discarded ADM-3/dead_letters", wrap: administers(func(a *bentAdmin) {
		a.delete = func(ctx context.Context, sub messaging.Subscription) (uint64, error) {
			all, _ := a.Admin.Subscriptions(ctx)
			_, err := a.Admin.Delete(ctx, sub)
			for _, s := range all {
				if s.Name == sub.Name && s.DeadLettersOf == sub.DeadLettersOf {
					return s.Pending, err
				}
			}
			return 0, err
		}
	})},
	{name: "Delete takes the dead letters along", breaks: "ADM-3/dead_letters ADM-3/undecodable", wrap: administers(func(a *bentAdmin) {
		a.delete = func(ctx context.Context, sub messaging.Subscription) (uint64, error) {
			if sub.DeadLettersOf == "" {
				a.Admin.DeleteDeadLetters(ctx, sub.Name)
			}
			return a.Admin.Delete(ctx, sub)
		}
	})},
	{name: "Receive after Delete waits", breaks: "ADM-3/members RCV-1/deleted", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			d, err := s.Source.Receive(ctx)
			if !errors.Is(err, messaging.ErrNotFound) {
				return d, err
			}
			return s.never(ctx)
		}
	}},
	{name: "Receive after Delete is closed", breaks: "ADM-3/discarded ADM-3/members RCV-1/deleted", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			d, err := s.Source.Receive(ctx)
			if errors.Is(err, messaging.ErrNotFound) {
				err = messaging.ErrClosed
			}
			return d, err
		}
	}},
	{name: "dead letters cannot be deleted", breaks: "ADM-3/dead_letters", wrap: administers(func(a *bentAdmin) {
		a.letters = func(ctx context.Context, name string) (uint64, error) {
			all, _ := a.Admin.Subscriptions(ctx)
			for _, s := range all {
				if s.Name == name && s.DeadLettersOf == "" {
					return s.DeadLetters, nil
				}
			}
			return 0, messaging.ErrNotFound
		}
	})},
	{name: "DeleteDeadLetters forgets what did not decode", breaks: "ADM-3/undecodable", wrap: administers(func(a *bentAdmin) {
		a.letters = func(ctx context.Context, name string) (uint64, error) {
			bad, err := a.Admin.Undecodable(ctx, name)
			if err != nil {
				return 0, err
			}
			n, err := a.Admin.DeleteDeadLetters(ctx, name)
			return n - uint64(len(bad)), err
		}
	})},

	// ADM-4.
	{
		name: "Update does nothing", breaks: "SUB-4/update ADM-4/in_place ADM-4/max_in_flight ADM-4/max_attempts ADM-4/ack_wait ADM-4/types ADM-4/dead_letters ADM-4/expires ADM-4/invalid",
		wrap: administers(func(a *bentAdmin) {
			a.update = func(context.Context, messaging.Subscription) error { return nil }
		}),
	},
	{name: "Update moves to the first", breaks: "ADM-4/in_place ADM-4/types SUB-4/update", wrap: administers(func(a *bentAdmin) {
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			return errors.Join(a.Admin.Update(ctx, sub), a.Admin.Seek(ctx, sub, messaging.StartFirst()))
		}
	})},
	{name: "Update follows Start", breaks: "ADM-4/in_place", wrap: administers(func(a *bentAdmin) {
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			return errors.Join(a.Admin.Update(ctx, sub), a.Admin.Seek(ctx, sub, sub.Start))
		}
	})},
	{name: "Update moves on", breaks: "ADM-4/in_place ADM-4/types ADM-4/max_in_flight", wrap: administers(func(a *bentAdmin) {
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			return errors.Join(a.Admin.Update(ctx, sub), a.Admin.Seek(ctx, sub, messaging.StartNew()))
		}
	})},
	{name: "Update makes it anew", breaks: "ADM-4/in_place ADM-4/max_in_flight ADM-4/max_attempts ADM-4/types", wrap: func(b *bent) {
		administers(func(a *bentAdmin) {
			a.update = func(ctx context.Context, sub messaging.Subscription) error {
				if _, err := sub.Normalize(); err != nil {
					return err
				}
				if _, err := a.Admin.Delete(ctx, sub); err != nil {
					return err
				}
				src, err := b.Broker.Subscribe(ctx, sub, nil)
				if err != nil {
					return err
				}
				return src.Close()
			}
		})(b)
	}},
	{name: "Update keeps MaxInFlight", breaks: "ADM-4/max_in_flight", wrap: updatesAllBut(func(have, want *messaging.Subscription) { want.MaxInFlight = have.MaxInFlight })},
	{name: "Update keeps MaxAttempts", breaks: "ADM-4/max_attempts ADM-4/dead_letters", wrap: updatesAllBut(func(have, want *messaging.Subscription) { want.MaxAttempts = have.MaxAttempts })},
	{name: "Update keeps AckWait", breaks: "ADM-4/ack_wait", wrap: updatesAllBut(func(have, want *messaging.Subscription) { want.AckWait = have.AckWait })},
	{name: "Update adds types only", breaks: "ADM-4/types", wrap: updatesAllBut(func(have, want *messaging.Subscription) {
		if len(want.Types) > 0 && len(have.Types) > 0 {
			want.Types = slices.Concat(have.Types, want.Types)
		}
	})},
	{name: "Update keeps Expires", breaks: "ADM-4/expires", wrap: updatesAllBut(func(have, want *messaging.Subscription) { want.Expires = have.Expires })},
	{name: "Update expires at once", breaks: "ADM-4/expires", wrap: updates(func(sub *messaging.Subscription) { sub.Expires = min(sub.Expires, 1) })},
	{name: "Update to Expires undeclared", breaks: "ADM-4/unsupported", harness: func(h *Harness) { h.Capabilities &^= Expires }},
	{name: "Update mends what is invalid", breaks: "ADM-4/invalid", wrap: updates(func(sub *messaging.Subscription) {
		sub.AckWait, sub.MaxInFlight, sub.MaxAttempts, sub.Expires = max(sub.AckWait, 0), max(sub.MaxInFlight, 0), max(sub.MaxAttempts, 0), max(sub.Expires, 0)
	})},
	{name: "Update does the valid part", breaks: "ADM-4/invalid", wrap: administers(func(a *bentAdmin) {
		a.update = func(ctx context.Context, sub messaging.Subscription) error {
			err := a.Admin.Update(ctx, sub)
			if errors.Is(err, messaging.ErrInvalid) {
				have := current(ctx, a.Admin, sub)
				have.MaxInFlight = max(sub.MaxInFlight, 0)
				a.Admin.Update(ctx, have)
			}
			return err
		}
	})},
	{name: "Update of dead letters is of their subscription", breaks: "ADM-4/dead_letters", wrap: updates(func(sub *messaging.Subscription) { sub.DeadLettersOf = "" })},

	// RCV-5.
	{name: "keeps nothing that does not decode", breaks: "RCV-5/raw", wrap: administers(func(a *bentAdmin) {
		a.raw = func(context.Context, string) ([]*messaging.DecodeError, error) { return nil, nil }
	})},
	{name: "keeps the youngest first", breaks: "RCV-5/raw", wrap: administers(func(a *bentAdmin) {
		a.raw = func(ctx context.Context, name string) ([]*messaging.DecodeError, error) {
			all, err := a.Admin.Undecodable(ctx, name)
			slices.Reverse(all)
			return all, err
		}
	})},
	{name: "keeps bodies as text", breaks: "RCV-5/raw", wrap: rawWith(func(d *messaging.DecodeError) { d.Body = []byte(strings.ToValidUTF8(string(d.Body), "?")) })},
	{name: "keeps no headers", breaks: "RCV-5/raw", wrap: rawWith(func(d *messaging.DecodeError) { d.Header = nil })},
	{name: "does not say what is wrong", breaks: "RCV-5/raw", wrap: rawWith(func(d *messaging.DecodeError) { d.Err = nil })},
	{name: "counts what does not decode as dead letters", breaks: "RCV-5/raw", wrap: administers(func(a *bentAdmin) {
		a.status = func(s *messaging.Status) {
			bad, _ := a.Admin.Undecodable(context.Background(), s.Name)
			s.DeadLetters += uint64(len(bad))
		}
	})},

	// RET-3.
	{name: "tells of one event too few", breaks: "RET-3/told RET-3/while_a_member_is_open", wrap: reports(func(err error) error {
		if d, ok := errors.AsType[*messaging.DiscardedError](err); ok {
			return &messaging.DiscardedError{Subscription: d.Subscription, Count: d.Count - 1}
		}
		return err
	})},
	{name: "tells of losses in words only", breaks: "RET-3/told RET-3/while_a_member_is_open", wrap: reports(func(err error) error { return errors.New(err.Error()) })},
	{name: "tells who lost nothing", breaks: "RET-3/told", wrap: func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			report.Do(ctx, &messaging.DiscardedError{Subscription: sub.Name})
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},
	{name: "loses more than it must", breaks: "RET-3/told RET-3/while_a_member_is_open PUB-3/concurrent RCV-1/takes_nothing RUN-1/react RUN-10/RUN-1_react", wrap: func(b *bent) {
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if d.Info.Sequence == 17 || d.Info.Sequence == 9 {
				return nil
			}
			return d
		}
	}},
	{name: "delivers beside what it cannot bury", breaks: "DLQ-3/strict_order", wrap: func(b *bent) {
		settlesInstead(reactor.Rejected, reactor.Acked)(b)
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			report.Do(ctx, errors.New("no room for dead letters"))
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}},
	{name: "no bound while it cannot bury", breaks: "DLQ-3/others_go_on", wrap: subscribes(func(sub *messaging.Subscription) { sub.MaxInFlight = 0 })},
}

// AdminOf finds the Admin that a broker is, or wraps; and says so where there
// is none.
func TestAdminOf(t *testing.T) {
	inner := memory.New(nil)
	other := memory.New(nil)
	outer := adminOf{inner, other}
	for name, c := range map[string]struct {
		s    messaging.Subscriber
		want messaging.Admin
	}{
		"itself":         {inner, inner},
		"wrapped":        {wraps{&bare{}, inner}, inner},
		"wrapped twice":  {wraps{&bare{}, wraps{&bare{}, inner}}, inner},
		"the outer one":  {outer, outer},
		"none":           {&bare{}, nil},
		"none wrapped":   {wraps{&bare{}, &bare{}}, nil},
		"none any more":  {wraps{&bare{}, nil}, nil},
		"nothing at all": {nil, nil},
	} {
		got, err := messaging.AdminOf(c.s)
		if got != c.want || errors.Is(err, errors.ErrUnsupported) != (c.want == nil) {
			t.Errorf("%s: AdminOf returned %v, %v", name, got, err)
		}
	}
}

// bare is a broker without Admin.
type bare struct{ messaging.Broker }

// wraps wraps a broker, and hides all but the contract.
type wraps struct {
	messaging.Broker
	inner messaging.Broker
}

func (w wraps) Unwrap() messaging.Broker { return w.inner }

// A provider without an Admin passes: what needs one is skipped, and says why.
func TestWithoutAdmin(t *testing.T) {
	h := memoryHarness()
	h.Open = func(t *testing.T) Broker {
		b := memory.New(nil)
		return struct {
			messaging.Broker
			io.Closer
		}{&bare{b}, b}
	}
	s := newSuite(h)
	for _, id := range []string{"ADM-1", "ADM-2", "ADM-3", "ADM-4"} {
		for _, c := range checks[id] {
			if s.lacks(c) != "" {
				continue
			}
			err := s.check(t, c)
			if nothing, ok := errors.AsType[skipped](err); !ok || !strings.Contains(nothing.reason, "has no Admin") {
				t.Errorf("%s/%s: %v", id, c.name, err)
			}
		}
	}
}
