package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

var errBoom = errors.New("boom")

// A fate is what a handler does with a value.
type fate func(ctx context.Context, info reactor.Info) error

// failsOnce fails a value's first attempt, which comes again after that long.
func failsOnce(after time.Duration) fate {
	return func(_ context.Context, info reactor.Info) error {
		if info.Attempt == 1 {
			return reactor.RetryAfter(errBoom, after)
		}
		return nil
	}
}

// takes handles for that long, whatever its context says.
func takes(d time.Duration) fate {
	return func(context.Context, reactor.Info) error {
		time.Sleep(d)
		return nil
	}
}

// byFate handles values by their fate, nil where there is none, and writes down
// when.
func byFate(j *journal, fates map[string]fate) reactor.Handler[string] {
	return func(ctx context.Context, v string) error {
		info := reactor.InfoFrom(ctx)
		j.add("%s #%d", v, info.Attempt)
		if f := fates[v]; f != nil {
			return f(ctx, info)
		}
		return nil
	}
}

// TestKey holds Run to the order of a key across retries, and to no delay of
// other keys [RUN-2].
func TestKey(t *testing.T) {
	tests := []struct {
		name        string
		concurrency int
		setUp       func(b *broker)
		values      []string
		fates       map[string]fate
		want        []string
		end         string // of every value; empty: acked
	}{
		{
			name:   "one after another",
			values: []string{"a/1", "a/2", "a/3"},
			fates:  map[string]fate{"a/1": takes(time.Second), "a/2": takes(time.Second)},
			want:   []string{"0s a/1 #1", "1s a/2 #1", "2s a/3 #1"}, concurrency: 3,
		},
		{
			name:   "the others of the key wait for one that failed",
			values: []string{"a/1", "a/2", "b/1", "b/2", "a/3"},
			fates:  map[string]fate{"a/1": failsOnce(5 * time.Second)},
			want:   []string{"0s a/1 #1", "0s b/1 #1", "0s b/2 #1", "5s a/1 #2", "5s a/2 #1", "5s a/3 #1"},
		},
		{
			name:   "each key has its own backoff",
			values: []string{"a/1", "b/1", "a/2", "b/2", "c/1"},
			fates:  map[string]fate{"a/1": failsOnce(3 * time.Second), "b/1": failsOnce(2 * time.Second)},
			want:   []string{"0s a/1 #1", "0s b/1 #1", "0s c/1 #1", "2s b/1 #2", "2s b/2 #1", "3s a/1 #2", "3s a/2 #1"},
		},
		{
			name:   "one that fails later, too",
			values: []string{"a/1", "a/2", "a/3"},
			fates:  map[string]fate{"a/1": failsOnce(time.Second), "a/2": failsOnce(time.Second)},
			want:   []string{"0s a/1 #1", "1s a/1 #2", "1s a/2 #1", "2s a/2 #2", "2s a/3 #1"},
		},
		{
			name:   "a dead letter is not waited for",
			setUp:  func(b *broker) { b.maxAttempts = 1 },
			values: []string{"a/1", "a/2"},
			fates: map[string]fate{
				"a/1": func(context.Context, reactor.Info) error { return errBoom },
				"a/2": func(context.Context, reactor.Info) error { return errBoom },
			},
			want: []string{"0s a/1 #1", "0s a/2 #1"},
			end:  "dead",
		},
		{
			name:   "a rejected one is not waited for",
			values: []string{"a/1", "a/2"},
			fates: map[string]fate{
				"a/1": func(context.Context, reactor.Info) error { return reactor.Reject(errBoom) },
				"a/2": func(context.Context, reactor.Info) error { return reactor.Reject(errBoom) },
			},
			want: []string{"0s a/1 #1", "0s a/2 #1"},
			end:  "rejected",
		},
		{
			name:   "a source without sequences",
			setUp:  func(b *broker) { b.unsequenced = true },
			values: []string{"a/1", "a/2", "b/1"},
			fates:  map[string]fate{"a/1": failsOnce(5 * time.Second)},
			want:   []string{"0s a/1 #1", "0s b/1 #1", "5s a/1 #2", "5s a/2 #1"},
		},
		{
			name:   "a source whose deliveries never time out",
			setUp:  func(b *broker) { b.ackWait = 0 },
			values: []string{"a/1", "a/2", "b/1"},
			fates:  map[string]fate{"a/1": failsOnce(time.Hour)},
			want:   []string{"0s a/1 #1", "0s b/1 #1", "1h0m0s a/1 #2", "1h0m0s a/2 #1"},
		},
		{
			name:   "all that is in flight waits",
			setUp:  func(b *broker) { b.maxInFlight = 2 },
			values: []string{"a/1", "a/2", "b/1"},
			fates:  map[string]fate{"a/1": failsOnce(5 * time.Second)},
			want:   []string{"0s a/1 #1", "5s a/1 #2", "5s b/1 #1", "5s a/2 #1"},
		},
		{
			name:   "due again while every worker is busy for longer than its time",
			values: []string{"a/1", "a/2", "b/1"},
			fates:  map[string]fate{"a/1": failsOnce(time.Second), "b/1": takes(65 * time.Second)},
			want:   []string{"0s a/1 #1", "0s b/1 #1", "1m5s a/1 #2", "1m5s a/2 #1"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(10*time.Second, test.values...)
				if test.setUp != nil {
					test.setUp(b)
				}
				j := newJournal()
				r := start(t, b, byFate(j, test.fates), &reactor.Options[string]{Key: keyOf, Concurrency: test.concurrency})
				time.Sleep(2 * time.Hour)
				r.drain(t)
				got := j.read()
				if test.setUp != nil && b.maxInFlight > 0 {
					// Which of two keys is first is not said.
					slices.Sort(got)
					slices.Sort(test.want)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
				if test.end == "" {
					test.end = "acked"
				}
				b.checkAll(t, test.end)
			})
		})
	}
}

// TestKeyReleased holds Run to the order of values that middleware or a pause
// gave back, and to no wait beyond their coming again.
func TestKeyReleased(t *testing.T) {
	for _, unsequenced := range []bool{false, true} {
		for _, open := range []time.Duration{5 * time.Second, 25 * time.Second} {
			t.Run(fmt.Sprintf("open for %v, unsequenced %v", open, unsequenced), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBroker(10*time.Second, "x/1", "a/1", "a/2", "a/3", "a/4")
					b.unsequenced = unsequenced
					var mu sync.Mutex
					var got []string
					began := time.Now()
					var end time.Duration
					h := reactor.Breaker(func(ctx context.Context, v string) error {
						time.Sleep(time.Second) // the others come meanwhile
						if v == "x/1" && reactor.InfoFrom(ctx).Attempt == 1 {
							return reactor.RetryAfter(errBoom, 0)
						}
						mu.Lock()
						defer mu.Unlock()
						got = append(got, v)
						end = time.Since(began)
						return nil
					}, 1, open)
					r := start(t, b, h, &reactor.Options[string]{Key: keyOf, Concurrency: 2})
					time.Sleep(10 * time.Minute)
					r.drain(t)
					got = slices.DeleteFunc(got, func(v string) bool { return v == "x/1" })
					if diff := cmp.Diff([]string{"a/1", "a/2", "a/3", "a/4"}, got); diff != "" {
						t.Errorf("handled (-want +got):\n%s", diff)
					}
					if most := open + 6*time.Second; end > most {
						t.Errorf("the last was handled after %v, want %v at most", end, most)
					}
					b.checkAll(t, "acked")
				})
			})
		}
	}
}

// TestKeyWhileNothingIsReceived holds Run to the order of a key whose value could
// not come again in its time, because a breaker was open.
func TestKeyWhileNothingIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10*time.Second, "a/1", "a/2", "b/1")
		j := newJournal()
		r := start(t, b, reactor.Breaker(byFate(j, map[string]fate{
			"a/1": failsOnce(5 * time.Second),
			"b/1": failsOnce(5 * time.Second),
		}), 2, 20*time.Second), &reactor.Options[string]{Key: keyOf})
		time.Sleep(time.Hour)
		r.drain(t)
		if diff := cmp.Diff([]string{"0s a/1 #1", "0s b/1 #1", "20s a/1 #2", "20s a/2 #1", "20s b/1 #2"}, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
		b.checkAll(t, "acked")
	})
}

// TestKeyFarDeadline has a key wait for its failed value also when deliveries last as
// long as time does.
func TestKeyFarDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(math.MaxInt64, "a/1", "a/2")
		var order []string
		r := start(t, b, func(ctx context.Context, v string) error {
			attempt := reactor.InfoFrom(ctx).Attempt
			order = append(order, fmt.Sprint(v, " ", attempt))
			if v == "a/1" && attempt == 1 {
				return errBoom
			}
			return nil
		}, &reactor.Options[string]{Concurrency: 2, Key: keyOf})
		time.Sleep(time.Minute)
		r.drain(t)
		if want := []string{"a/1 1", "a/1 2", "a/2 1"}; !slices.Equal(order, want) {
			t.Errorf("handled in the order %q, want %q", order, want)
		}
	})
}

// A slowBroker takes its time to take back.
type slowBroker struct {
	*broker
	delay time.Duration
}

func (b slowBroker) Receive(ctx context.Context) (*reactor.Delivery[string], error) {
	d, err := b.broker.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return reactor.NewDelivery(d.Value, d.Info, d.Deadline(), slowSettler{d, b.delay}), nil
}

type slowSettler struct {
	*reactor.Delivery[string]
	delay time.Duration
}

func (s slowSettler) Settle(ctx context.Context, o reactor.Outcome) error {
	if o.Result == reactor.Released {
		time.Sleep(s.delay)
	}
	return s.Delivery.Settle(ctx, o)
}

// TestKeyResumedEarly resumes a reactor that still gives back what waited for its
// key: nothing newer of the key is received before.
func TestKeyResumedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := slowBroker{newBroker(0, "a/1", "a/2", "a/3"), 100 * time.Millisecond}
		var order []string
		react := reactor.New("r", opens(b), func(_ context.Context, v string) error {
			order = append(order, v)
			if v == "a/1" {
				time.Sleep(50 * time.Millisecond)
			}
			return nil
		}, &reactor.Options[string]{Concurrency: 2, Key: keyOf})
		r := startFunc(t, react.Run)
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		if err := react.Pause(ctx); err == nil {
			t.Error("Pause returned before it has given back what waits")
		}
		react.Resume()
		b.publish("a/4", "a/5")
		time.Sleep(time.Minute)
		r.drain(t)
		if want := []string{"a/1", "a/2", "a/3", "a/4", "a/5"}; !slices.Equal(order, want) {
			t.Errorf("handled in the order %q, want %q", order, want)
		}
	})
}
