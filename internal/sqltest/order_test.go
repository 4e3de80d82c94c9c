package sqltest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/outbox"
	"github.com/catchment-events/catchment/reactor"
)

// stubborn is a publisher that fails some events for a while, and notes the
// calls.
type stubborn struct {
	mu sync.Mutex
	// Below: under mu.
	fails map[string]error // by id
	calls [][]string       // ids of what was to be published
	done  []string         // ids of what was
}

func (p *stubborn) Publish(_ context.Context, events ...event.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, ids(events))
	errs := make([]error, len(events))
	failed := false
	for i, e := range events {
		if errs[i] = p.fails[e.ID()]; errs[i] != nil {
			failed = true
		} else {
			p.done = append(p.done, e.ID())
		}
	}
	if !failed {
		return nil
	}
	return &reactor.BatchError{Errors: errs}
}

func (p *stubborn) published() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.done)
}

// heal ends the failures.
func (p *stubborn) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = nil
}

// waitFor waits until something holds.
func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("after %v: not %s", patience, what)
		}
	}
}

func TestFailingKeyBlocksItself(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		// The blocked key has more events than a relay holds.
		ob := newOutbox(t, db, &outbox.Options{Window: 20})
		var events []event.Event
		var want []string
		for i := range 100 {
			a, b := newEvent(t, fmt.Sprint("a", i), "a"), newEvent(t, fmt.Sprint("b", i), "b")
			events = append(events, a)
			if i%2 == 0 {
				events = append(events, b)
				want = append(want, b.ID())
			}
		}
		publish(t, db, ob, events...)
		p := &stubborn{fails: map[string]error{"a3": errors.New("not now")}}
		relay(t, ob, p, soon)
		waitFor(t, "all of b published", func() bool { return slices.Contains(p.published(), "b98") })
		if done := p.published(); slices.Contains(done, "a4") {
			t.Errorf("a4 was published before a3: %v", done)
		}
		publish(t, db, ob, newEvent(t, "c", "c"))
		waitFor(t, "c published", func() bool { return slices.Contains(p.published(), "c") })
		if err := db.QueryRow(`SELECT 1 FROM outbox WHERE id = 'a3' AND attempts > 0 AND last_error = 'not now'`).Scan(new(int)); err != nil {
			t.Errorf("the failure of a3 is not noted: %v", err)
		}
		p.heal()
		empty(t, ob)
		var a, b []string
		for _, id := range p.published() {
			switch id[0] {
			case 'a':
				a = append(a, id)
			case 'b':
				b = append(b, id)
			}
		}
		if diff := cmp.Diff(want, b); diff != "" {
			t.Errorf("b (-want +got):\n%s", diff)
		}
		want = nil
		for i := range 100 {
			want = append(want, fmt.Sprint("a", i))
		}
		if diff := cmp.Diff(want, a); diff != "" {
			t.Errorf("a (-want +got):\n%s", diff)
		}
	})
}

// TestCalls has a batch published in one call, but for keys that come twice.
func TestCalls(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		var events []event.Event
		for i := range 10 {
			events = append(events, newEvent(t, fmt.Sprint(i), fmt.Sprint(i)))
		}
		events = append(events, newEvent(t, "again", "3"), newEvent(t, "other", "10"))
		publish(t, db, ob, events...)
		p := &stubborn{}
		stop := relay(t, ob, p, &messaging.Options{BatchWait: 100 * time.Millisecond})
		empty(t, ob)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		want := [][]string{{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, {"again", "other"}}
		if diff := cmp.Diff(want, p.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// TestRunWithKey has a reactor of its own on the source: one event at a time, and
// several at once by key.
func TestRunWithKey(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		var want []string
		for i := range 50 {
			for _, key := range []string{"a", "b", "c"} {
				publish(t, db, ob, newEvent(t, fmt.Sprint(key, i), key))
			}
			want = append(want, fmt.Sprint(i))
		}
		src := open(t, ob)
		var mu sync.Mutex
		got := make(map[string][]string)
		tries := make(map[string]int)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := reactor.Run(ctx, src, func(_ context.Context, e event.Event) error {
			mu.Lock()
			defer mu.Unlock()
			tries[e.ID()]++
			if n, _ := strings.CutPrefix(e.ID(), "a"); len(n) == 1 && tries[e.ID()] < 3 {
				return errors.New("not now")
			}
			key := e.ID()[:1]
			got[key] = append(got[key], e.ID()[1:])
			return nil
		}, &messaging.Options{Concurrency: 4, Key: messaging.PartitionKey, IdleTimeout: 500 * time.Millisecond, Backoff: soon.Backoff})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "c"} {
			if diff := cmp.Diff(want, got[key]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", key, diff)
			}
		}
		if s, err := ob.Stats(t.Context()); err != nil || s.Pending > 0 {
			t.Errorf("stats %+v, %v", s, err)
		}
	})
}

// TestRefused has the broker refuse an event for good: it is parked, and what
// becomes of its key is up to the options.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name         string
		hold         bool
		before, then []string
	}{
		{"key goes on", false, []string{"a1", "b1", "a3"}, []string{"a1", "b1", "a3", "a2"}},
		{"key is held", true, []string{"a1", "b1"}, []string{"a1", "b1", "a2", "a3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d database) {
				db := d.open(t)
				ob := newOutbox(t, db, &outbox.Options{HoldParked: tt.hold})
				p := &stubborn{fails: map[string]error{"a2": fmt.Errorf("%w: no", messaging.ErrInvalid)}}
				publish(t, db, ob, newEvent(t, "a1", "a"), newEvent(t, "a2", "a"), newEvent(t, "b1", "b"))
				relay(t, ob, p, nil)
				stats(t, ob, func(s outbox.Stats) bool { return s.Parked == 1 && s.Pending == 0 })
				publish(t, db, ob, newEvent(t, "a3", "a"))
				publish(t, db, ob, newEvent(t, "fence", "c"))
				waitFor(t, "fence published", func() bool { return slices.Contains(p.published(), "fence") })
				got := slices.DeleteFunc(p.published(), func(id string) bool { return id == "fence" })
				if diff := cmp.Diff(tt.before, got); diff != "" {
					t.Errorf("with a2 parked (-want +got):\n%s", diff)
				}
				parked, err := ob.Parked(t.Context(), 0, 10)
				if err != nil || len(parked) != 1 || parked[0].Event.ID() != "a2" || parked[0].Reason != "messaging: invalid: no" {
					t.Fatalf("parked %+v, %v", parked, err)
				}
				p.heal()
				if n, err := ob.Retry(t.Context(), parked[0].Sequence); n != 1 || err != nil {
					t.Fatalf("retry: %d, %v", n, err)
				}
				empty(t, ob)
				got = slices.DeleteFunc(p.published(), func(id string) bool { return id == "fence" })
				if diff := cmp.Diff(tt.then, got); diff != "" {
					t.Errorf("after the retry (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestHeldAtOnce has the later events of a key in the hands of the relay when an
// earlier one is parked: they are held, too.
func TestHeldAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		event string // of a1
	}{
		{"refused", ""},
		{"undecodable", "no JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d database) {
				db := d.open(t)
				ob := newOutbox(t, db, &outbox.Options{HoldParked: true})
				p := &stubborn{fails: map[string]error{"a1": messaging.ErrInvalid}}
				publish(t, db, ob, newEvent(t, "a1", "a"), newEvent(t, "a2", "a"), newEvent(t, "b1", "b"))
				if tt.event != "" {
					if _, err := db.Exec(`UPDATE outbox SET event = $1 WHERE id = 'a1'`, tt.event); err != nil {
						t.Fatal(err)
					}
				}
				relay(t, ob, p, nil)
				stats(t, ob, func(s outbox.Stats) bool { return s.Parked == 1 && s.Pending == 1 })
				publish(t, db, ob, newEvent(t, "fence", "c"))
				waitFor(t, "fence published", func() bool { return slices.Contains(p.published(), "fence") })
				if diff := cmp.Diff([]string{"b1", "fence"}, p.published()); diff != "" {
					t.Errorf("with a1 parked (-want +got):\n%s", diff)
				}
				if n, err := ob.Discard(t.Context(), 1); n != 1 || err != nil {
					t.Fatalf("discard: %d, %v", n, err)
				}
				waitFor(t, "a2 published", func() bool { return slices.Contains(p.published(), "a2") })
			})
		})
	}
}

// TestRetryElsewhere has another process retry a parked event: it is published
// before those that were held for it, although the relay has gone on since.
func TestRetryElsewhere(t *testing.T) {
	t.Parallel() // it mostly waits
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		opts := &outbox.Options{HoldParked: true, Poll: 10 * time.Millisecond}
		ob, elsewhere := newOutbox(t, db, opts), newOutbox(t, db, opts)
		p := &stubborn{fails: map[string]error{}}
		var want []string
		for i := range 4 {
			p.fails[fmt.Sprint("a", i)] = messaging.ErrInvalid
			publish(t, db, ob, newEvent(t, fmt.Sprint("a", i), fmt.Sprint("key ", i)))
			want = append(want, fmt.Sprint("a", i), fmt.Sprint("b", i))
		}
		relay(t, ob, p, nil)
		stats(t, ob, func(s outbox.Stats) bool { return s.Parked == 4 })
		parked, err := ob.Parked(t.Context(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 30 { // others go by, until nobody looks back that far
			time.Sleep(100 * time.Millisecond)
			publish(t, db, ob, newEvent(t, fmt.Sprint("other ", i), "other"))
		}
		for i := range parked {
			publish(t, db, ob, newEvent(t, fmt.Sprint("b", i), fmt.Sprint("key ", i)))
		}
		p.heal()
		for i, e := range parked {
			if n, err := elsewhere.Retry(t.Context(), e.Sequence); n != 1 || err != nil {
				t.Fatalf("retry: %d, %v", n, err)
			}
			waitFor(t, "both published", func() bool {
				return slices.Contains(p.published(), fmt.Sprint("a", i)) && slices.Contains(p.published(), fmt.Sprint("b", i))
			})
			time.Sleep(150 * time.Millisecond) // at another moment between two sweeps
		}
		got := slices.DeleteFunc(p.published(), func(id string) bool { return strings.HasPrefix(id, "other") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	})
}

// TestManyKeysWait has thousands of keys wait for a retry, and a backlog of them:
// other keys go by, and no call of the database comes near its deadline. In SQLite,
// which -race slows down, the backlog is small.
func TestManyKeysWait(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		lease := 20 * time.Second
		if d.postgres() {
			lease = 10 * time.Second
		}
		ob := newOutbox(t, db, &outbox.Options{Lease: lease, Report: func(_ context.Context, err error) { t.Error(err) }})
		text, err := event.Marshal(newEvent(t, "waits", ""))
		if err != nil {
			t.Fatal(err)
		}
		fill := `WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 11999)
			INSERT INTO outbox (source, id, partitionkey, event, next_at)
			SELECT 'many', n, 'a customer ' || n % 6000, $1, CASE WHEN n < 6000 THEN 7258118400000 END FROM numbers`
		if d.postgres() {
			fill = `INSERT INTO outbox (source, id, partitionkey, event, next_at)
				SELECT 'many', n::text, 'a customer ' || n % 6000, $1, CASE WHEN n < 6000 THEN timestamptz '2200-01-01' END
				FROM generate_series(0, 119999) AS n`
		}
		if _, err := db.Exec(fill, string(text)); err != nil {
			t.Fatal(err)
		}
		src := open(t, ob)
		for i := range 8 { // a statement that is said often has another plan in PostgreSQL
			id := fmt.Sprint(i)
			publish(t, db, ob, newEvent(t, id, "good"))
			if err := receive(t, src, id).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDiscard(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, &outbox.Options{HoldParked: true})
		p := &stubborn{fails: map[string]error{"a1": messaging.ErrTooLarge}}
		publish(t, db, ob, newEvent(t, "a1", "a"))
		relay(t, ob, p, nil)
		stats(t, ob, func(s outbox.Stats) bool { return s.Parked == 1 })
		publish(t, db, ob, newEvent(t, "a2", "a"))
		if n, err := ob.Discard(t.Context(), 1, 2); n != 1 || err != nil {
			t.Fatalf("discard: %d, %v; want 1: the other is not parked", n, err)
		}
		empty(t, ob)
		if diff := cmp.Diff([]string{"a2"}, p.published()); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	})
}

func TestMaxAttempts(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, &outbox.Options{MaxAttempts: 3})
		p := &stubborn{fails: map[string]error{"a1": errors.New("not now")}}
		publish(t, db, ob, newEvent(t, "a1", "a"), newEvent(t, "a2", "a"))
		relay(t, ob, p, soon)
		stats(t, ob, func(s outbox.Stats) bool { return s.Parked == 1 && s.Pending == 0 })
		parked, err := ob.Parked(t.Context(), 0, 10)
		if err != nil || len(parked) != 1 || parked[0].Attempts != 3 || parked[0].Reason != "not now" {
			t.Errorf("parked %+v, %v", parked, err)
		}
		if diff := cmp.Diff([]string{"a2"}, p.published()); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	})
}

// picky refuses whole calls, as brokers do, for one of their events.
type picky struct {
	messaging.Publisher
	calls int
}

func (p *picky) Publish(ctx context.Context, events ...event.Event) error {
	p.calls++
	for _, e := range events {
		if strings.HasPrefix(e.ID(), "bad") {
			return messaging.ErrTooLarge
		}
	}
	return p.Publisher.Publish(ctx, events...)
}

// TestOneIsRefused has one event refuse the call of many: the others are
// published, and it is parked.
func TestOneIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		ob := newOutbox(t, db, nil)
		var events []event.Event
		for i := range 100 {
			id := fmt.Sprint(i)
			if i == 37 || i == 70 {
				id = fmt.Sprint("bad", i)
			}
			events = append(events, newEvent(t, id, id))
		}
		publish(t, db, ob, events...)
		all := &stubborn{}
		p := &picky{Publisher: all}
		stop := relay(t, ob, p, nil)
		s := stats(t, ob, func(s outbox.Stats) bool { return s.Pending == 0 })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := len(all.published()); n != 98 || s.Parked != 2 {
			t.Errorf("%d published, %d parked; want 98 and 2", n, s.Parked)
		}
		if p.calls > 40 {
			t.Errorf("%d calls for 100 events of which 2 are refused", p.calls)
		}
	})
}
