package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// score is of TestFaultyBrokers: how many faults were found, of how many. It is
// printed after all else, where a count of subtests is not.
var score struct{ found, of int }

func TestMain(m *testing.M) {
	code := m.Run()
	if verbose := flag.Lookup("test.v"); score.of > 0 && verbose.Value.String() != "false" {
		fmt.Printf("%d of %d faults found\n", score.found, score.of)
	}
	os.Exit(code)
}

// faultyHarness is memory's with a fault.
func faultyHarness(f fault) Harness {
	h := memoryHarness()
	bend := func(b Broker) Broker {
		if f.wrap == nil && f.restart == nil {
			return b
		}
		bent := &bent{Broker: b}
		if f.wrap != nil {
			f.wrap(bent)
		}
		return bent
	}
	h.Open = func(t *testing.T) Broker {
		b := memory.New(&f.options)
		t.Cleanup(func() { b.Close() })
		return bend(b)
	}
	good := h
	h.OpenFull = func(t *testing.T) Broker { return bend(good.OpenFull(t)) }
	h.OpenDiscarding = func(t *testing.T, events int) Broker { return bend(good.OpenDiscarding(t, events)) }
	h.OpenDeadFull = func(t *testing.T) (Broker, func()) {
		b, room := good.OpenDeadFull(t)
		return bend(b), room
	}
	h.Inject = func(t *testing.T, b Broker, header map[string][]string, body []byte) {
		if w, ok := b.(*bent); ok {
			b = w.Broker
		}
		good.Inject(t, b, header, body)
	}
	h.fake = func() Broker { return bend(newFake()) }
	if f.restart != nil {
		// The process is killed: nothing is closed, and nobody comes back for
		// what its members hold.
		h.Capabilities |= Durable
		h.Restart = func(t *testing.T, b Broker) Broker {
			after := f.restart(b.(*bent).Broker.(*memory.Broker))
			t.Cleanup(func() { after.Close() })
			return bend(after)
		}
	}
	if f.harness != nil {
		f.harness(&h)
	}
	return h
}

// broken runs the checks that a fault breaks, an ID or ID/name, until one fails,
// and returns what it found.
func broken(t *testing.T, s *suite, breaks string) error {
	id, name, one := strings.Cut(breaks, "/")
	for _, c := range checks[id] {
		if s.lacks(c) != "" || one && c.name != name {
			continue
		}
		found := s.check(t, c)
		if _, nothing := errors.AsType[skipped](found); found != nil && !nothing {
			return found
		}
	}
	return nil
}

// The suite has to say no: each of these brokers is found out, in each of the
// requirements that it breaks.
func TestFaultyBrokers(t *testing.T) {
	score.found, score.of = 0, 0
	names := make(map[string]bool)
	for _, f := range allFaults() {
		if names[f.name] {
			t.Errorf("two faults are named %q", f.name)
		}
		names[f.name] = true
		score.of++
		if t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			if f.breaks == "" {
				t.Fatal("breaks nothing")
			}
			s := newSuite(faultyHarness(f))
			for id := range strings.FieldsSeq(f.breaks) {
				found := broken(t, s, id)
				if found == nil {
					t.Errorf("no check of %s fails", id)
					continue
				}
				text, _, _ := strings.Cut(found.Error(), "\n")
				t.Logf("%s: %s", id, text)
			}
		}) {
			score.found++
		}
	}
}

// notAimedAt are the checks that no fault is aimed at, and why.
var notAimedAt = map[string]string{
	"CAP-1/nothing_undeclared": "it holds for every broker that passes SUB-2 and SUB-10: it is there so that CAP-1 is never empty",
}

// A check that is taken out, or that finds nothing any more, is missed: each is
// named by a fault that it has to find.
func TestEveryCheckFindsAFault(t *testing.T) {
	aimed := make(map[string]bool)
	for _, f := range allFaults() {
		for id := range strings.FieldsSeq(f.breaks) {
			aimed[id] = true
		}
	}
	for _, r := range Requirements() {
		for _, c := range checks[r.ID] {
			id := r.ID + "/" + c.name
			switch reason, listed := notAimedAt[id]; {
			case !aimed[id] && !listed:
				t.Errorf("no fault is aimed at %s", id)
			case aimed[id] && listed:
				t.Errorf("a fault is aimed at %s, and it is listed as one that none is aimed at (%s)", id, reason)
			}
			delete(aimed, id)
		}
		delete(aimed, r.ID)
	}
	for id := range aimed {
		t.Errorf("a fault is aimed at %s, which does not exist", id)
	}
}

// legal are brokers that are odd, and keep the contract.
var legal = []struct {
	fault
	slack      time.Duration
	lacks      Capability
	deviations map[string]string
}{
	{fault: fault{name: "kept, and no more"}},
	{fault: fault{name: "nothing lost at a restart", restart: sameBroker}},
	{fault: fault{name: "error after store", wrap: func(b *bent) {
		// A call that is cut off has stored its events, and cannot know.
		b.publish = func(ctx context.Context, events []event.Event) error {
			if err := b.Broker.Publish(ctx, events...); err != nil || len(events) == 0 {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Microsecond):
			}
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%w: %w", messaging.ErrUnknown, err)
			}
			return nil
		}
	}}},
	{fault: fault{name: "duplicate delivery across a crash", restart: func(b *memory.Broker) *memory.Broker {
		// The last ack of each subscription had not reached the disk.
		all, _ := b.Subscriptions(context.Background())
		for _, s := range all {
			if s.DeadLettersOf == "" && s.DeadLetters == 0 && s.InFlight == 0 && s.Pending == 0 {
				b.Seek(context.Background(), s.Subscription, messaging.StartFirst())
			}
		}
		return b
	}}, lacks: ConfirmedAck | ExactAttempts},
	{fault: fault{name: "members finishing out of order", wrap: func(b *bent) {
		b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
			if s.member%2 == 0 {
				if err := s.waits(ctx, 3*time.Millisecond); err != nil {
					return nil, err
				}
			}
			return s.Source.Receive(ctx)
		}
	}}},
	{fault: fault{name: "as late as it says", wrap: func(b *bent) {
		subscribes(func(sub *messaging.Subscription) {
			if sub.AckWait > 0 {
				sub.AckWait += 50 * time.Millisecond
			}
		})(b)
		b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
			if s.sub.AckWait == 0 {
				return d
			}
			return reactor.NewDelivery(d.Value, d.Info, d.Deadline().Add(-50*time.Millisecond), d)
		}
		b.extend = func(d *bentDelivery, ctx context.Context) (time.Time, error) {
			deadline, err := d.inner.Extend(ctx)
			return deadline.Add(-50 * time.Millisecond), err
		}
		administers(func(a *bentAdmin) {
			a.status = func(s *messaging.Status) {
				if s.AckWait != messaging.DefaultAckWait {
					s.AckWait -= 50 * time.Millisecond
				}
			}
			a.update = func(ctx context.Context, sub messaging.Subscription) error {
				if sub.AckWait > 0 {
					sub.AckWait += 50 * time.Millisecond
				}
				return a.Admin.Update(ctx, sub)
			}
		})(b)
	}}, slack: 50 * time.Millisecond, deviations: map[string]string{"SUB-4": "the wrapper changes AckWait, and so what conflicts name"}},
}

// The suite must not say no to what the contract allows.
func TestLegalBrokers(t *testing.T) {
	for _, l := range legal {
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			h := faultyHarness(l.fault)
			h.fake = nil
			h.Slack = l.slack
			h.Capabilities &^= l.lacks
			h.Deviations = l.deviations
			Run(t, h)
		})
	}
}
