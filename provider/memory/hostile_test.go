package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// hostileRun is what a service saw of a hostile broker.
type hostileRun struct {
	nasty    map[string]int  // how often, by what
	stored   map[string]bool // Publish said so
	acked    map[string]int  // acks that returned nil
	rejected map[string]bool
	letters  map[string]int
}

// runHostile publishes events, of which every tenth is rejected, through two
// members that receive in turns, and empties the dead letters.
func runHostile(t *testing.T, h memory.Hostile, events int) *hostileRun {
	b := memory.New(&memory.Options{Hostile: &h})
	defer b.Close()
	r := &hostileRun{
		nasty: make(map[string]int), stored: make(map[string]bool), acked: make(map[string]int),
		rejected: make(map[string]bool), letters: make(map[string]int),
	}
	sub := messaging.Subscription{Name: "all", AckWait: time.Minute, MaxAttempts: 20}
	members := []messaging.Source{subscribe(t, b, sub), subscribe(t, b, sub)}
	for n := 0; n < events; n += 5 {
		var batch []event.Event
		for i := range 5 {
			batch = append(batch, newEvent(t, fmt.Sprint(n+i)))
		}
		r.publish(t, b, batch)
	}

	var last uint64
	for turn := 0; ; turn++ {
		d := r.receive(t, members[turn%2])
		if d == nil {
			break
		}
		id := d.Value.ID()
		var n int
		if _, err := fmt.Sscan(id, &n); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.rejected[id]:
			t.Errorf("event %s arrived after it was rejected", id)
		case r.acked[id] > 0:
			r.nasty["undone ack"]++
			if d.Info.Attempt <= r.acked[id] {
				t.Errorf("event %s arrived in attempt %d after %d acks", id, d.Info.Attempt, r.acked[id])
			}
		case d.Info.Attempt > 1:
			r.nasty["vanished"]++
		case d.Info.Sequence < last:
			r.nasty["shuffled"]++
		}
		last = d.Info.Sequence
		if n%10 == 0 {
			r.settle(t, func() error { return d.Reject(t.Context(), "bad") })
			r.rejected[id] = true
		} else {
			r.settle(t, func() error { return d.Ack(t.Context()) })
			r.acked[id]++
		}
	}
	dead := subscribe(t, b, messaging.Subscription{Name: "dead", DeadLettersOf: "all"})
	seen := make(map[uint64]bool)
	for {
		d := r.receive(t, dead)
		if d == nil {
			break
		}
		if letter, ok := messaging.DeadLetterFrom(d.Info); !ok || letter.Reason != "bad" {
			t.Errorf("event %s has the dead letter %+v, want the reason %q", d.Value.ID(), letter, "bad")
		}
		if !seen[d.Info.Sequence] {
			seen[d.Info.Sequence] = true
			r.letters[d.Value.ID()]++
		}
		r.settle(t, func() error { return d.Ack(t.Context()) })
	}
	for _, n := range r.letters {
		if n > 1 {
			r.nasty["buried twice"]++
		}
	}
	return r
}

// publish publishes until all of a batch is stored.
func (r *hostileRun) publish(t *testing.T, b *memory.Broker, batch []event.Event) {
	for {
		began := time.Now()
		err := b.Publish(t.Context(), batch...)
		if time.Since(began) > 0 {
			r.nasty["slow publish"]++
		}
		failed, ok := errors.AsType[*reactor.BatchError](err)
		if err != nil && (!ok || len(failed.Errors) != len(batch)) {
			t.Fatalf("publish: %v", err)
		}
		gap := false
		for i, e := range batch {
			switch {
			case err == nil || failed.Errors[i] == nil:
				r.stored[e.ID()] = true
				if gap {
					r.nasty["gap"]++
					gap = false
				}
			default:
				wantErr(t, failed.Errors[i], messaging.ErrUnknown)
				gap = true
			}
		}
		if err == nil {
			return
		}
		r.nasty["failed publish"]++
	}
}

// receive receives, or returns nil when there is nothing for an hour.
func (r *hostileRun) receive(t *testing.T, src messaging.Source) *messaging.Delivery {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	began := time.Now()
	d, err := src.Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	want(t, err)
	if took := time.Since(began); took > 0 && took < time.Second {
		r.nasty["slow receive"]++
	}
	return d
}

// settle settles until it is done.
func (r *hostileRun) settle(t *testing.T, settle func() error) {
	for range 3 {
		began := time.Now()
		err := settle()
		if time.Since(began) > 0 {
			r.nasty["slow settle"]++
		}
		if err == nil {
			return
		}
		if errors.Is(err, reactor.ErrLost) || errors.Is(err, reactor.ErrSettled) {
			t.Fatalf("settle: %v", err)
		}
		r.nasty["failed settle"]++
	}
	t.Fatal("a settle failed three times")
}

// TestHostile holds a hostile broker to what it must still do, and to doing
// each of its nasty things, the same ones each time.
func TestHostile(t *testing.T) {
	const events = 500
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			r := runHostile(t, memory.Hostile{Seed: seed}, events)
			for _, what := range []string{
				"slow publish", "slow receive", "slow settle", "failed publish", "gap",
				"failed settle", "undone ack", "vanished", "shuffled", "buried twice",
			} {
				if r.nasty[what] == 0 {
					t.Errorf("seed %d: no %s", seed, what)
				}
			}
			for i := range events {
				id := fmt.Sprint(i)
				dies := i%10 == 0
				if !r.stored[id] || (r.acked[id] > 0) == dies || r.rejected[id] != dies || (r.letters[id] > 0) != dies {
					t.Errorf("seed %d: event %s: stored %v, acked %d times, rejected %v, %d dead letters",
						seed, id, r.stored[id], r.acked[id], r.rejected[id], r.letters[id])
				}
			}
			again := runHostile(t, memory.Hostile{Seed: seed}, events)
			if fmt.Sprint(r.nasty) != fmt.Sprint(again.nasty) {
				t.Errorf("seed %d: did %v, and then %v", seed, r.nasty, again.nasty)
			}
		})
	}
}

// TestHostileNever holds a broker to being kind where it may do nothing.
func TestHostileNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runHostile(t, memory.Hostile{
			Slow: -1, FailPublish: -1, PublishGaps: -1, Shuffle: -1, FailSettle: -1, UndoAck: -1, Vanish: -1, BuryTwice: -1,
		}, 100)
		if len(r.nasty) > 0 {
			t.Errorf("did %v", r.nasty)
		}
	})
}

// TestHostileAlways holds to everything coming to an end at the highest rates.
func TestHostileAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runHostile(t, memory.Hostile{
			Slow: 1, FailPublish: -1, Shuffle: 1, FailSettle: 1, UndoAck: 1, Vanish: 1, BuryTwice: 1,
		}, 100)
		for i := range 100 {
			if id := fmt.Sprint(i); i%10 != 0 && r.acked[id] != 3 || i%10 == 0 && r.letters[id] != 2 {
				t.Errorf("event %s was acked %d times and has %d dead letters", id, r.acked[id], r.letters[id])
			}
		}
	})
}

// TestHostileOrder holds to the order that a lone member is promised, and
// strict order to several [RCV-3]: there an event that comes again does so
// before the next.
func TestHostileOrder(t *testing.T) {
	for name, c := range map[string]struct {
		hostile  memory.Hostile
		inFlight int
		members  int
	}{
		"alone":  {memory.Hostile{Slow: 1, Shuffle: 1, FailPublish: -1, UndoAck: -1, Vanish: -1}, 100, 1},
		"strict": {memory.Hostile{Slow: 1, Shuffle: 1, FailPublish: -1, UndoAck: 0.3, Vanish: 0.3}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(&memory.Options{Hostile: &c.hostile})
				var members []messaging.Source
				for range c.members {
					members = append(members, subscribe(t, b, messaging.Subscription{Name: "all", MaxInFlight: c.inFlight}))
				}
				const events = 50
				for i := range events {
					want(t, b.Publish(t.Context(), newEvent(t, fmt.Sprint(i))))
				}
				for turn, last := 0, uint64(0); last < events; turn++ {
					d, err := members[turn%c.members].Receive(t.Context())
					want(t, err)
					if s := d.Info.Sequence; s != last+1 && (s != last || d.Info.Attempt == 1) {
						t.Fatalf("received event %d in attempt %d after %d", s, d.Info.Attempt, last)
					}
					last = d.Info.Sequence
					for d.Ack(t.Context()) != nil {
					}
				}
			})
		})
	}
}

// TestHostileCutShort holds slow calls to their contexts.
func TestHostileCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{Hostile: &memory.Hostile{
			Slow: 1, MaxDelay: time.Hour, FailPublish: -1, FailSettle: -1, UndoAck: -1, Vanish: -1,
		}})
		src := subscribe(t, b, messaging.Subscription{Name: "all", AckWait: 24 * time.Hour})
		short := func(f func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			return f(ctx)
		}
		err := short(func(ctx context.Context) error { return b.Publish(ctx, newEvent(t, "1")) })
		wantErr(t, err, messaging.ErrUnknown)
		wantErr(t, err, context.DeadlineExceeded)
		wantErr(t, short(func(ctx context.Context) error { _, err := src.Receive(ctx); return err }), context.DeadlineExceeded)
		d, err := src.Receive(t.Context())
		want(t, err)
		wantErr(t, short(d.Ack), context.DeadlineExceeded)
		before := d.Deadline()
		wantErr(t, short(func(ctx context.Context) error { _, err := d.Extend(ctx); return err }), context.DeadlineExceeded)
		if !d.Deadline().Equal(before) {
			t.Errorf("an Extend that failed moved the deadline by %v", d.Deadline().Sub(before))
		}
		began := time.Now()
		deadline, err := d.Extend(t.Context())
		want(t, err)
		if !deadline.Equal(began.Add(24 * time.Hour)) {
			t.Errorf("the deadline is %v after Extend began, want AckWait", deadline.Sub(began))
		}
		want(t, d.Ack(t.Context()))
		want(t, src.Close())
		wantErr(t, d.Ack(t.Context()), reactor.ErrSettled)
	})
}

func TestHostileOutOfRange(t *testing.T) {
	for _, h := range []memory.Hostile{{Slow: 1.1}, {MaxDelay: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New took %+v", h)
				}
			}()
			memory.New(&memory.Options{Hostile: &h})
		}()
	}
}
