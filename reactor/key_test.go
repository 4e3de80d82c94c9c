package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// TestKeyGone holds Run to going on with a key, after the time that deliveries
// last, when a value that failed does not come again [RUN-2].
func TestKeyGone(t *testing.T) {
	for _, test := range []struct {
		ackWait time.Duration
		want    string
	}{
		{10 * time.Second, "13s a/2 #1"},
		{0, "33s a/2 #1"},
	} {
		t.Run(test.ackWait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(test.ackWait, "a/1", "a/2")
				b.letters[0].gone = true
				j := newJournal()
				r := start(t, b, byFate(j, map[string]fate{"a/1": failsOnce(3 * time.Second)}),
					&reactor.Options[string]{Key: keyOf, Concurrency: 2})
				time.Sleep(time.Minute)
				if diff := cmp.Diff([]string{"0s a/1 #1", test.want}, j.read()); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
				r.drain(t)
			})
		})
	}
}

// TestKeyGoneWhileBusy holds Run to going on with a key also when its workers
// are never idle: not before a value had its time to come again, and not long
// after.
func TestKeyGoneWhileBusy(t *testing.T) {
	for _, concurrency := range []int{1, 3} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(10*time.Second, "a/1", "a/2")
				b.letters[0].gone = true
				for i := range 1000 {
					b.publish(fmt.Sprintf("b%d/1", i))
				}
				began := time.Now()
				var went time.Duration
				r := start(t, b, func(ctx context.Context, v string) error {
					switch v {
					case "a/1":
						return reactor.RetryAfter(errBoom, time.Second)
					case "a/2":
						went = time.Since(began)
					}
					time.Sleep(time.Second)
					return nil
				}, &reactor.Options[string]{Key: keyOf, Concurrency: concurrency})
				time.Sleep(time.Minute)
				r.drain(t)
				if went < 11*time.Second || went > 35*time.Second {
					t.Errorf("the key went on after %v, want 11s to 35s", went)
				}
			})
		})
	}
}

// TestKeyLostInLine holds Run to the order when a value is lost while it waits
// for its key, and comes again before or after its turn [RUN-2].
func TestKeyLostInLine(t *testing.T) {
	for _, unsequenced := range []bool{false, true} {
		t.Run(fmt.Sprintf("unsequenced %v", unsequenced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(10*time.Second, "a/1", "a/2", "a/3")
				b.unsequenced = unsequenced
				j := newJournal()
				r := start(t, b, byFate(j, map[string]fate{"a/1": takes(20 * time.Second)}),
					&reactor.Options[string]{Key: keyOf, Concurrency: 3})
				synctest.Wait()
				b.lose("a/2")
				time.Sleep(time.Minute)
				r.drain(t)
				if diff := cmp.Diff([]string{"0s a/1 #1", "20s a/2 #2", "20s a/3 #1"}, j.read()); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
				b.checkAll(t, "acked")
			})
		})
	}
}

// TestKeyLostInLineUnnoticed holds Run to handling the later of two deliveries of a
// value, although it does not know that it has lost the earlier one.
func TestKeyLostInLineUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10*time.Second, "a/1", "a/2", "a/3")
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/1": takes(2 * time.Second)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 3})
		synctest.Wait()
		b.lose("a/2")
		time.Sleep(time.Minute)
		r.drain(t)
		if diff := cmp.Diff([]string{"0s a/1 #1", "2s a/2 #2", "2s a/3 #1"}, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
		b.checkAll(t, "acked")
	})
}

// TestKeyFromAnother holds Run to the place of a value that another member had
// before, among those that wait.
func TestKeyFromAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10*time.Second, "a/1", "a/2", "a/3")
		d, err := b.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/2": takes(5 * time.Second)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 3})
		synctest.Wait()
		if err := d.Release(t.Context()); err != nil {
			t.Errorf("Release returned %v", err)
		}
		time.Sleep(time.Minute)
		r.drain(t)
		if diff := cmp.Diff([]string{"0s a/2 #1", "5s a/1 #1", "5s a/3 #1"}, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

// TestKeyLostInLineAndGone holds Run to skipping what it has lost in line, and
// to the wait for it.
func TestKeyLostInLineAndGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10*time.Second, "a/1", "a/2", "a/3")
		b.letters[1].gone = true
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/1": takes(20 * time.Second)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 3})
		synctest.Wait()
		b.lose("a/2")
		time.Sleep(time.Minute)
		r.drain(t)
		if diff := cmp.Diff([]string{"0s a/1 #1", "30s a/3 #1"}, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

// TestKeyLostWhileHandled holds Run to one at a time although a value comes
// again before the handler that lost it has returned [RUN-2, RUN-5].
func TestKeyLostWhileHandled(t *testing.T) {
	for _, unsequenced := range []bool{false, true} {
		t.Run(fmt.Sprintf("unsequenced %v", unsequenced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(10*time.Second, "a/1", "a/2")
				b.unsequenced = unsequenced
				j := newJournal()
				r := start(t, b, byFate(j, map[string]fate{"a/1": takes(20 * time.Second)}),
					&reactor.Options[string]{Key: keyOf, Concurrency: 3})
				synctest.Wait()
				b.lose("a/1")
				time.Sleep(time.Minute)
				r.drain(t)
				if diff := cmp.Diff([]string{"0s a/1 #1", "20s a/1 #2", "40s a/2 #1"}, j.read()); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
				b.checkAll(t, "acked")
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

// TestKeyConcurrency holds Run to Concurrency with keys, and to a worker for
// each key as far as there are workers [RUN-2].
func TestKeyConcurrency(t *testing.T) {
	const keys = 10_000
	for _, limit := range []int{1, 7, keys} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(time.Minute)
				for n := range 2 {
					for i := range keys {
						b.publish(fmt.Sprintf("%d/%d", i, n))
					}
				}
				var g gauge
				before := runtime.NumGoroutine()
				r := start(t, b, func(context.Context, string) error {
					g.enter()
					defer g.leave()
					time.Sleep(time.Second)
					return nil
				}, &reactor.Options[string]{Key: keyOf, Concurrency: limit})
				synctest.Wait()
				if now, _ := g.read(); now != limit {
					t.Errorf("%d handlers run, want %d", now, limit)
				}
				time.Sleep(time.Duration(2*keys/limit+1) * time.Second)
				synctest.Wait()
				b.checkAll(t, "acked")
				if now, most := g.read(); now != 0 || most != limit {
					t.Errorf("%d handlers run at the end, %d at most; want 0 and %d", now, most, limit)
				}
				if n := runtime.NumGoroutine() - before; n > 20 {
					t.Errorf("%d goroutines when there is nothing to do", n)
				}
				r.drain(t)
			})
		})
	}
}

// TestKeyBackingOff holds Run to no goroutine for a key that waits for a value
// to come again, and to going on with the other keys.
func TestKeyBackingOff(t *testing.T) {
	const keys = 5000
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10 * time.Second)
		for i := range keys {
			b.publish(fmt.Sprintf("%d/1", i), fmt.Sprintf("%d/2", i))
		}
		var failed gauge
		before := runtime.NumGoroutine()
		r := start(t, b, func(ctx context.Context, v string) error {
			if info := reactor.InfoFrom(ctx); info.Attempt == 1 && info.Sequence%2 == 1 {
				failed.enter()
				return reactor.RetryAfter(errBoom, time.Minute)
			}
			return nil
		}, &reactor.Options[string]{Key: keyOf, Concurrency: 4})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n, _ := failed.read(); n != keys {
			t.Errorf("%d keys back off, want %d", n, keys)
		}
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("%d goroutines while %d keys back off", n, keys)
		}
		if n := b.received(); n != keys {
			t.Errorf("%d values wait for their key, want %d", n, keys)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		b.checkAll(t, "acked")
		r.drain(t)
	})
}

// TestKeyHeld holds Run to a bound of what waits for its key, and to receiving
// again as soon as there is room.
func TestKeyHeld(t *testing.T) {
	const most = 1 << 14
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Hour)
		for i := range most + 100 {
			b.publish(fmt.Sprintf("a/%d", i))
		}
		b.publish("b/1")
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/0": takes(time.Second), "a/200": takes(time.Minute)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 3})
		synctest.Wait()
		if n := b.received(); n < most || n > most+3 {
			t.Errorf("%d values were received, want %d and a few", n, most)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !slices.Contains(j.read(), "1s b/1 #1") {
			t.Error("another key was not handled when there was room")
		}
		time.Sleep(2 * time.Minute)
		r.drain(t)
		b.checkAll(t, "acked")
	})
}

// TestKeyHeldByOneThatFailed holds Run to receiving a value that comes again
// though all that may wait for it does.
func TestKeyHeldByOneThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute)
		for i := range 1<<14 + 100 {
			b.publish(fmt.Sprintf("a/%d", i))
		}
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/0": failsOnce(time.Second)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 3})
		time.Sleep(time.Hour)
		r.drain(t)
		if diff := cmp.Diff([]string{"0s a/0 #1", "1s a/0 #2", "1s a/1 #1"}, j.read()[:3]); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
		b.checkAll(t, "acked")
	})
}

// TestKeyDrain holds Run to releasing what waits for its key, at once and in
// order, when it is told to stop [RUN-3].
func TestKeyDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "a/1", "b/1", "a/2", "b/2", "a/3", "c/1")
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/1": takes(10 * time.Second), "b/1": failsOnce(time.Minute)}),
			&reactor.Options[string]{Key: keyOf, Concurrency: 4})
		synctest.Wait()
		r.stop()
		synctest.Wait()
		want := []string{"b/1 retried", "c/1 acked", "a/2 released", "b/2 released", "a/3 released"}
		got := b.history()
		slices.Sort(got[:2])
		// A Receive that is not told yet may get the first of them once more.
		if len(got) > 5 && slices.Equal(got[5:], want[2:3]) {
			got = got[:5]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
		began := time.Now()
		r.drain(t)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("Run returned after %v, want 10s, when the handler did", took)
		}
	})
}

// TestKeyDrainLate holds Run to releasing what it receives as it is told to stop,
// also behind a handler of its key [RUN-3].
func TestKeyDrainLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "a/1")
		b.late = []string{"a/2", "a/3"}
		r := start(t, b, func(context.Context, string) error {
			time.Sleep(10 * time.Second)
			return nil
		}, &reactor.Options[string]{Key: keyOf, Concurrency: 2})
		synctest.Wait()
		r.stop()
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a/2 released"}, b.history()); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
		r.drain(t)
		if b.left > 0 {
			t.Errorf("%d deliveries were left to Close", b.left)
		}
	})
}

// TestKeyDrainDuringOutage holds Run to an end although what waits for its key
// cannot be released: closing the source gives it back [RUN-3, CLS-1].
func TestKeyDrainDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(0)
		for i := range 1000 {
			b.publish(fmt.Sprintf("a/%d", i))
		}
		r := start(t, b, func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		}, &reactor.Options[string]{Key: keyOf, Concurrency: 2, DrainTimeout: 10 * time.Second})
		synctest.Wait()
		b.hang()
		began := time.Now()
		r.drain(t)
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("Run drained for %v, want DrainTimeout and a short grace", took)
		}
	})
}

// TestKeyPanics holds Run to a Key that panics: as for a handler [RUN-6].
func TestKeyPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "a/1", "a/2")
		r := start(t, b, func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		}, &reactor.Options[string]{Concurrency: 2, Key: func(v string) string {
			if v == "bad" {
				explode(errBoom)
			}
			return keyOf(v)
		}})
		synctest.Wait()
		b.publish("bad", "a/3")
		r.wait()
		p, ok := r.panic.(*reactor.PanicError)
		if !ok || !errors.Is(p, errBoom) {
			t.Fatalf("Run panicked with %v, want a *PanicError of boom", r.panic)
		}
		want := []string{"a/1 acked", "a/2 released", "bad retried"}
		got := b.history()
		slices.Sort(got)
		got = slices.Compact(got) // a Receive that was not told yet may get one once more
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
	})
}

// TestKeyExits holds Run to a Key that ends its goroutine: as for a handler.
func TestKeyExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(time.Minute, "bad", "a/1")
		r := start(t, b, func(context.Context, string) error { return nil },
			&reactor.Options[string]{Key: func(v string) string {
				if v == "bad" {
					runtime.Goexit()
				}
				return v
			}})
		synctest.Wait()
		if !r.quit {
			t.Error("Run goes on without receiving")
			r.stop()
		}
		r.wait()
		if diff := cmp.Diff([]string{"bad retried"}, b.history()); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
	})
}

// TestKeyIdle holds Run to no end by IdleTimeout while a key waits for a value.
func TestKeyIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(10*time.Second, "a/1", "a/2")
		b.letters[0].gone = true
		j := newJournal()
		r := start(t, b, byFate(j, map[string]fate{"a/1": failsOnce(3 * time.Second)}),
			&reactor.Options[string]{Key: keyOf, IdleTimeout: time.Second})
		if err := r.wait(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if diff := cmp.Diff([]string{"0s a/1 #1", "13s a/2 #1"}, j.read()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}
