package memory

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// within fails the test if f waits for something that the test has.
func within(t *testing.T, what string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal(what)
	}
}

// publishTypes publishes an event of each type.
func publishTypes(t *testing.T, b *Broker, types ...string) {
	t.Helper()
	for _, typ := range types {
		e, err := event.New("/test", typ, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// open subscribes; what is reported joins reports, if that is not nil.
func open(t *testing.T, b *Broker, sub messaging.Subscription, reports *[]error) messaging.Source {
	t.Helper()
	src, err := b.Subscribe(t.Context(), sub, func(_ context.Context, err error) {
		if reports != nil {
			*reports = append(*reports, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// wantSequence receives and acks, and holds what comes to sequences.
func wantSequence(t *testing.T, src messaging.Source, sequences ...uint64) {
	t.Helper()
	var got []uint64
	for range sequences {
		d, err := src.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		got = append(got, d.Info.Sequence)
	}
	if !slices.Equal(got, sequences) {
		t.Fatalf("received %d, want %d", got, sequences)
	}
}

// wantNothing holds a source to having nothing to receive.
func wantNothing(t *testing.T, src messaging.Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if d, err := src.Receive(ctx); err == nil {
		t.Fatalf("received event %d, want none", d.Info.Sequence)
	}
}

// TestPublishBesideConsumers has the mutex of the consumers held while somebody
// publishes, and nobody waits.
func TestPublishBesideConsumers(t *testing.T) {
	b := New(nil)
	open(t, b, messaging.Subscription{Name: "s"}, nil)
	e, err := event.New("/test", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	within(t, "Publish waits for those who receive", func() error { return b.Publish(t.Context(), e) })
}

// TestConsumeBesidePublish has somebody receive and ack while somebody else is about
// to store, and then, of what was read ahead, while he stores.
func TestConsumeBesidePublish(t *testing.T) {
	b := New(nil)
	publishTypes(t, b, slices.Repeat([]string{"a"}, 3*mostAhead)...)
	src := open(t, b, messaging.Subscription{Name: "s"}, nil)
	consume := func(n int) func() error {
		return func() error {
			for range n {
				d, err := src.Receive(t.Context())
				if err != nil {
					return err
				}
				if err := d.Ack(t.Context()); err != nil {
					return err
				}
			}
			return nil
		}
	}
	b.storing.Lock()
	defer b.storing.Unlock()
	within(t, "a member waits for one who is about to store", consume(2*mostAhead))
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	within(t, "a member waits for one who stores, with events read ahead", consume(20))
}

// TestStartBesidePublish subscribes from a time on, while an event is being stored that
// has an earlier one: it is not delivered [SUB-2].
func TestStartBesidePublish(t *testing.T) {
	b := New(nil)
	e, err := event.New("/test", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	early, err := encode(e)
	if err != nil {
		t.Fatal(err)
	}
	b.storing.Lock()
	early.stored = time.Now()
	opened := make(chan messaging.Source, 1)
	go func() {
		src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s", Start: messaging.StartAt(early.stored.Add(1))}, nil)
		if err != nil {
			t.Error(err)
		}
		opened <- src
	}()
	var src messaging.Source
	select {
	case src = <-opened: // too early
	case <-time.After(50 * time.Millisecond):
	}
	b.log.add(&early)
	b.storing.Unlock()
	if src == nil {
		src = <-opened
	}
	publishTypes(t, b, "a")
	wantSequence(t, src, 2)
}

// TestAheadIsForgotten changes what is next for a consumer that has read ahead.
func TestAheadIsForgotten(t *testing.T) {
	sub := messaging.Subscription{Name: "s", Types: []string{"a"}}
	started := func(t *testing.T, opts *Options, reports *[]error) (*Broker, messaging.Source) {
		b := New(opts)
		publishTypes(t, b, "a", "b", "a", "b", "a", "b")
		src := open(t, b, sub, reports)
		wantSequence(t, src, 1)
		return b, src
	}
	for name, test := range map[string]func(*testing.T){
		"seek": func(t *testing.T) {
			b, src := started(t, nil, nil)
			if err := b.Seek(t.Context(), sub, messaging.StartFirst()); err != nil {
				t.Fatal(err)
			}
			wantSequence(t, src, 1, 3, 5)
			wantNothing(t, src)
		},
		"types": func(t *testing.T) {
			b, src := started(t, nil, nil)
			changed := sub
			changed.Types = []string{"b"}
			if err := b.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
			wantSequence(t, src, 4, 6) // 2 lies before 3, which was next
			wantNothing(t, src)
		},
		"types of what was passed": func(t *testing.T) {
			b, src := started(t, nil, nil)
			wantSequence(t, src, 3, 5)
			changed := sub
			changed.Types = []string{"a", "b"}
			if err := b.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
			wantNothing(t, src)
		},
		"discard": func(t *testing.T) {
			var reports []error
			b, src := started(t, &Options{MaxEvents: 6, DiscardOldest: true}, &reports)
			publishTypes(t, b, "a", "b", "a") // 1 to 3 are gone
			wantSequence(t, src, 5, 7, 9)
			wantNothing(t, src)
			want := fmt.Sprint([]error{&messaging.DiscardedError{Subscription: "s", Count: 1}})
			if got := fmt.Sprint(reports); got != want {
				t.Errorf("reported %s, want %s", got, want)
			}
		},
		"dead letters": func(t *testing.T) {
			b, src := started(t, nil, nil)
			for range 2 {
				d, err := src.Receive(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Reject(t.Context(), "no"); err != nil {
					t.Fatal(err)
				}
			}
			first := open(t, b, messaging.Subscription{Name: "first", DeadLettersOf: "s"}, nil)
			second := open(t, b, messaging.Subscription{Name: "second", DeadLettersOf: "s"}, nil)
			for _, src := range []messaging.Source{first, second} { // who keep the first letter where it is
				if _, err := src.Receive(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			b.mu.Lock() // as who wakes a Receive of first does
			b.consumers[identity{"s", "first"}].ready(time.Now())
			b.mu.Unlock()
			wantSequence(t, second, 2)
			wantNothing(t, first)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// TestDiscardBetween drops events after a consumer was brought up to date, and before
// it reads: they count as lost, too [RET-3].
func TestDiscardBetween(t *testing.T) {
	b := New(&Options{MaxEvents: 2, DiscardOldest: true})
	open(t, b, messaging.Subscription{Name: "s"}, nil)
	c := b.consumers[identity{name: "s"}]
	b.mu.Lock()
	defer b.mu.Unlock()
	c.update(time.Now())
	publishTypes(t, b, "a", "a", "a")
	c.ready(time.Now())
	if c.next != 2 || c.missed != 1 {
		t.Errorf("event %d is next, and %d were missed; want event 2, and 1", c.next, c.missed)
	}
}

// TestAheadKeepsNothing looks at what a consumer refers to that has come to the end.
func TestAheadKeepsNothing(t *testing.T) {
	b := New(nil)
	publishTypes(t, b, "a", "b", "a", "b")
	src := open(t, b, messaging.Subscription{Name: "s", Types: []string{"a"}}, nil)
	wantSequence(t, src, 1, 3)
	for i, e := range b.consumers[identity{name: "s"}].ahead.buffer {
		if e.seq != 0 || e.attributes != "" {
			t.Errorf("event %d stands in the buffer still, at %d", e.seq, i)
		}
	}
}

// TestManyRunsAreNoted holds to a bound what is remembered of dropped events for a
// consumer that does not come by, and to the truth what it is told then [RET-3].
func TestManyRunsAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []error
		b := New(&Options{MaxEvents: 2, DiscardOldest: true})
		src := open(t, b, messaging.Subscription{Name: "s", Types: []string{"a"}}, &reports)
		for range 2 * mostLost {
			publishTypes(t, b, "a", "b")
			if n := len(b.log.lost); n > mostLost {
				t.Fatalf("%d runs of dropped events are remembered", n)
			}
		}
		wantSequence(t, src, 4*mostLost-1)
		want := fmt.Sprint([]error{&messaging.DiscardedError{Subscription: "s", Count: 2*mostLost - 1}})
		if got := fmt.Sprint(reports); got != want {
			t.Errorf("reported %s, want %s", got, want)
		}
	})
}
