package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// drainIDs receives and acks all there is.
func drainIDs(t testing.TB, src messaging.Source) (ids []string) {
	t.Helper()
	for d := poll(t, src); d != nil; d = poll(t, src) {
		ids = append(ids, d.Value.ID())
		want(t, d.Ack(t.Context()))
	}
	return ids
}

func wantIDs(t testing.TB, src messaging.Source, ids ...string) {
	t.Helper()
	if got := drainIDs(t, src); !slices.Equal(got, ids) {
		t.Fatalf("received %q, want %q", got, ids)
	}
}

// TestDuplicates holds the window to its length, to the nanosecond, from the
// first of an id [PUB-3, PUB-4].
func TestDuplicates(t *testing.T) {
	for _, window := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New(&memory.Options{Duplicates: window})
			length := window
			if length == 0 {
				length = messaging.DefaultDuplicates
			}
			src := subscribe(t, b, messaging.Subscription{Name: "s"})
			publish(t, b, "a", "a", "b", "a")
			wantIDs(t, src, "a", "b")
			time.Sleep(length / 2)
			publish(t, b, "a") // does not extend the window
			other := newEvent(t, "a")
			other.SetSource("/other")
			want(t, b.Publish(t.Context(), other))
			wantIDs(t, src, "a")
			time.Sleep(length/2 - 1)
			publish(t, b, "a", "b")
			wantIDs(t, src)
			time.Sleep(time.Nanosecond)
			publish(t, b, "a", "b", "a")
			wantIDs(t, src, "a", "b")
			publish(t, b, "a")
			wantIDs(t, src)
		})
	}
}

// TestDuplicatesOfMany holds the window to its length when more ids leave it at
// once than the broker forgets at once.
func TestDuplicatesOfMany(t *testing.T) {
	const many = 20_000
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{Duplicates: time.Second})
		ids := make([]string, many)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		last := ids[many-1]
		publish(t, b, ids...)
		src := subscribe(t, b, messaging.Subscription{Name: "s", Start: messaging.StartNew()})
		time.Sleep(time.Second)
		publish(t, b, last)
		wantIDs(t, src, last)
		for i := range 10 { // meanwhile the old ones are forgotten
			publish(t, b, fmt.Sprint("new", i), last)
			wantIDs(t, src, fmt.Sprint("new", i))
		}
		time.Sleep(time.Second)
		publish(t, b, last, "new0")
		wantIDs(t, src, last, "new0")
	})
}

// TestFull holds Publish to all or nothing at the bound, with an error for
// each event, and to telling duplicates from what was not stored [RET-2].
func TestFull(t *testing.T) {
	tests := []struct {
		name string
		ids  []string
		want []bool // whether it failed
	}{
		{"one too many", []string{"x"}, []bool{true}},
		{"several", []string{"x", "y", "z"}, []bool{true, true, true}},
		{"some would fit", []string{"x", "b", "x", "a", "y"}, []bool{true, false, true, false, true}},
		{"more than ever fit", []string{"1", "2", "3", "4", "5", "a"}, []bool{true, true, true, true, true, false}},
		{"only duplicates", []string{"a", "b"}, nil},
		{"one duplicate", []string{"b"}, nil},
		{"nothing", nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(&memory.Options{MaxEvents: 3})
				publish(t, b, "a", "b", "c")
				err := b.Publish(t.Context(), newEvents(t, test.ids...)...)
				if (err != nil) != (test.want != nil) {
					t.Fatalf("publish = %v", err)
				}
				if test.want != nil {
					wantErr(t, err, messaging.ErrFull)
					if errors.Is(err, messaging.ErrUnknown) {
						t.Errorf("%v says that events may be stored", err)
					}
				}
				if len(test.want) > 1 {
					batch, ok := errors.AsType[*reactor.BatchError](err)
					if !ok || len(batch.Errors) != len(test.want) {
						t.Fatalf("publish = %#v, want a *BatchError of %d", err, len(test.want))
					}
					for i, failed := range test.want {
						if (batch.Errors[i] != nil) != failed {
							t.Errorf("event %d: %v, want an error: %v", i, batch.Errors[i], failed)
						}
					}
				}
				wantIDs(t, subscribe(t, b, messaging.Subscription{Name: "s"}), "a", "b", "c")
			})
		})
	}
}

// TestFullForgets holds an id that was refused to not counting as stored.
func TestFullForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxEvents: 3, DiscardOldest: true})
		wantErr(t, b.Publish(t.Context(), newEvents(t, "a", "b", "c", "d")...), messaging.ErrFull)
		src := subscribe(t, b, messaging.Subscription{Name: "s"})
		publish(t, b, "a", "b", "c")
		wantIDs(t, src, "a", "b", "c")
	})
}

// TestMaxBytes holds the log to its size in bytes.
func TestMaxBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		encoded, err := event.AppendAttributes(nil, newEvent(t, "a"))
		want(t, err)
		size := int64(len(encoded)) // it has no data
		b := memory.New(&memory.Options{MaxBytes: 3 * size})
		publish(t, b, "a", "b", "c")
		wantErr(t, b.Publish(t.Context(), newEvent(t, "d")), messaging.ErrFull)

		b = memory.New(&memory.Options{MaxBytes: 3*size + size/2, DiscardOldest: true})
		for _, id := range []string{"a", "b", "c", "d"} {
			publish(t, b, id)
		}
		wantErr(t, b.Publish(t.Context(), newEvents(t, "1", "2", "3", "4")...), messaging.ErrFull)
		src, _ := subscribeReporting(t, b, messaging.Subscription{Name: "s"})
		wantIDs(t, src, "b", "c", "d")
	})
}

// TestDiscardOldest holds subscriptions to being told how many events they
// lost, and to keeping what they have received [RET-3].
func TestDiscardOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxEvents: 4, DiscardOldest: true})
		late, lateReports := subscribeReporting(t, b, messaging.Subscription{Name: "late"})
		other, otherReports := subscribeReporting(t, b, messaging.Subscription{Name: "other", Types: []string{"other"}})
		early, earlyReports := subscribeReporting(t, b, messaging.Subscription{Name: "early"})
		publish(t, b, "0", "1", "2", "3")
		held := receive(t, early, "0", 1)
		want(t, receive(t, early, "1", 1).Retry(t.Context(), time.Minute))
		wantIDs(t, early, "2", "3")
		for i := 4; i < 10; i++ {
			publish(t, b, fmt.Sprint(i))
		}
		wantIDs(t, late, "6", "7", "8", "9")
		wantIDs(t, early, "6", "7", "8", "9")
		receiveNothing(t, other)
		want(t, held.Retry(t.Context(), 0))
		// Gone from the log, not from who has it.
		want(t, receive(t, early, "0", 2).Ack(t.Context()))
		receiveAt(t, early, "1", 2, time.Minute)
		checkDiscarded(t, "late", *lateReports, 6)
		checkDiscarded(t, "early", *earlyReports, 2)
		checkDiscarded(t, "other", *otherReports, 0)
	})
}

// checkDiscarded wants reports of that many lost events altogether.
func checkDiscarded(t *testing.T, name string, reports []error, count uint64) {
	t.Helper()
	var got uint64
	for _, err := range reports {
		d, ok := errors.AsType[*messaging.DiscardedError](err)
		if !ok || d.Subscription != name || d.Count == 0 {
			t.Errorf("%s was told of %v", name, err)
			continue
		}
		got += d.Count
	}
	if got != count {
		t.Errorf("%s was told of %d discarded events, want %d", name, got, count)
	}
}

// TestDiscardOldestTellsWhoWaits holds a member that waits for room in its
// MaxInFlight to being told of losses meanwhile [RET-3].
func TestDiscardOldestTellsWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(&memory.Options{MaxEvents: 2, DiscardOldest: true})
		told := make(chan error, 10)
		src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", MaxInFlight: 1, AckWait: time.Hour},
			func(_ context.Context, err error) { told <- err })
		want(t, err)
		publish(t, b, "0")
		receive(t, src, "0", 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = src.Receive(ctx) }()
		synctest.Wait()
		publish(t, b, "1", "2")
		publish(t, b, "3")
		synctest.Wait()
		cancel()
		close(told)
		var reports []error
		for err := range told {
			reports = append(reports, err)
		}
		checkDiscarded(t, "s", reports, 1)
	})
}

// TestPublishRefusals holds Publish to the order of its refusals [PUB-9].
func TestPublishRefusals(t *testing.T) {
	b := memory.New(nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	want(t, b.Publish(t.Context()))
	wantErr(t, b.Publish(ended), context.Canceled)
	wantErr(t, b.Publish(ended, event.Event{}), context.Canceled)
	wantErr(t, b.Publish(t.Context(), newEvent(t, "a"), event.Event{}), messaging.ErrInvalid)
	want(t, b.Close())
	want(t, b.Close())
	wantErr(t, b.Publish(ended, event.Event{}), messaging.ErrClosed)
	wantErr(t, b.Publish(t.Context()), messaging.ErrClosed)
	for range 2 {
		_, err := b.Subscribe(ended, messaging.Subscription{}, nil)
		wantErr(t, err, messaging.ErrClosed)
	}
}

// TestNewPanics holds New to options that are not negative.
func TestNewPanics(t *testing.T) {
	for _, o := range []memory.Options{{MaxEvents: -1}, {MaxBytes: -1}, {MaxDeadLetters: -1}, {Duplicates: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New(%+v) did not panic", o)
				}
			}()
			memory.New(&o)
		}()
	}
}

// TestDiscardedAreCounted holds subscriptions to being told of exactly the events
// that they select and lost, however many are lost before they come by [RET-3].
func TestDiscardedAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kept = 50
		b := memory.New(&memory.Options{MaxEvents: kept, DiscardOldest: true})
		random := rand.New(rand.NewPCG(1, 2))
		types := []string{"a", "b", "c"}
		var published []string // their types
		type member struct {
			typ      string // none: all
			src      messaging.Source
			reports  *[]error
			received int
			from     int
		}
		var members []*member
		for i := range 40 {
			m := &member{typ: []string{"", "a", "b"}[i%3], from: max(0, len(published)-kept)}
			sub := messaging.Subscription{Name: fmt.Sprint("s", i)}
			if m.typ != "" {
				sub.Types = []string{m.typ}
			}
			m.src, m.reports = subscribeReporting(t, b, sub)
			members = append(members, m)
			for range random.IntN(150) {
				typ := types[random.IntN(3)]
				e := newEvent(t, fmt.Sprint(len(published)))
				e.SetType(typ)
				want(t, b.Publish(t.Context(), e))
				published = append(published, typ)
				for _, m := range members {
					if random.IntN(100) > 0 {
						continue
					}
					if d := poll(t, m.src); d != nil {
						want(t, d.Ack(t.Context()))
						m.received++
					}
				}
			}
		}
		for i, m := range members {
			for d := poll(t, m.src); d != nil; d = poll(t, m.src) {
				want(t, d.Ack(t.Context()))
				m.received++
			}
			selected := 0
			for _, typ := range published[m.from:] {
				if m.typ == "" || m.typ == typ {
					selected++
				}
			}
			checkDiscarded(t, fmt.Sprint("s", i), *m.reports, uint64(selected-m.received))
		}
	})
}
