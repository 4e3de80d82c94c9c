package reactor_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/reactor"
)

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

// handledWhile runs with keys, does something once that has come to rest, and returns
// what was handled within a minute.
func handledWhile(t *testing.T, b *broker, fates map[string]fate, do func()) []string {
	t.Helper()
	j := newJournal()
	r := start(t, b, byFate(j, fates), &reactor.Options[string]{Key: keyOf, Concurrency: 3})
	synctest.Wait()
	do()
	time.Sleep(time.Minute)
	r.drain(t)
	return j.read()
}

// TestKeyLostInLine holds Run to the order when a value is lost while it waits
// for its key, and comes again before or after its turn [RUN-2].
func TestKeyLostInLine(t *testing.T) {
	for _, unsequenced := range []bool{false, true} {
		t.Run(fmt.Sprintf("unsequenced %v", unsequenced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(10*time.Second, "a/1", "a/2", "a/3")
				b.unsequenced = unsequenced
				got := handledWhile(t, b, map[string]fate{"a/1": takes(20 * time.Second)}, func() {
					b.lose("a/2")
				})
				if diff := cmp.Diff([]string{"0s a/1 #1", "20s a/2 #2", "20s a/3 #1"}, got); diff != "" {
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
		got := handledWhile(t, b, map[string]fate{"a/1": takes(2 * time.Second)}, func() {
			b.lose("a/2")
		})
		if diff := cmp.Diff([]string{"0s a/1 #1", "2s a/2 #2", "2s a/3 #1"}, got); diff != "" {
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
		got := handledWhile(t, b, map[string]fate{"a/2": takes(5 * time.Second)}, func() {
			if err := d.Release(t.Context()); err != nil {
				t.Errorf("Release returned %v", err)
			}
		})
		if diff := cmp.Diff([]string{"0s a/2 #1", "5s a/1 #1", "5s a/3 #1"}, got); diff != "" {
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
		got := handledWhile(t, b, map[string]fate{"a/1": takes(20 * time.Second)}, func() {
			b.lose("a/2")
		})
		if diff := cmp.Diff([]string{"0s a/1 #1", "30s a/3 #1"}, got); diff != "" {
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
				got := handledWhile(t, b, map[string]fate{"a/1": takes(20 * time.Second)}, func() {
					b.lose("a/1")
				})
				if diff := cmp.Diff([]string{"0s a/1 #1", "20s a/1 #2", "40s a/2 #1"}, got); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
				b.checkAll(t, "acked")
			})
		})
	}
}
