package local_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/catchment-events/catchment/provider/internal/local"
)

// TestLine drives a Line and a slice of those that wait, in order.
func TestLine(t *testing.T) {
	type waiter = local.Waiter[int]
	rapid.Check(t, func(t *rapid.T) {
		var l local.Line[int]
		var line, coming []*waiter
		starving := make(map[*waiter]bool)
		members := make(map[*waiter]int)
		came := func(w *waiter, woken bool) {
			if got := l.Arrive(w); got != woken {
				t.Fatalf("Arrive says woken %v, want %v", got, woken)
			}
			delete(starving, w)
			if rapid.Bool().Draw(t, "again") {
				l.Join(w, woken)
				if starving[w] = woken; woken {
					line = slices.Insert(line, 0, w)
				} else {
					line = append(line, w)
				}
			}
		}
		wake := func(ws ...*waiter) {
			for _, w := range ws {
				line = slices.Delete(line, slices.Index(line, w), slices.Index(line, w)+1)
				coming = append(coming, w)
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				member := rapid.IntRange(0, 2).Draw(t, "member")
				w := local.NewWaiter(member)
				members[w] = member
				l.Join(w, false)
				line = append(line, w)
			case 2:
				if len(line) > 0 {
					l.Next()
					wake(line[0])
				}
			case 3:
				member := rapid.IntRange(0, 2).Draw(t, "member")
				l.Member(member)
				wake(slices.DeleteFunc(slices.Clone(line), func(w *waiter) bool { return members[w] != member })...)
			case 4:
				if rapid.IntRange(0, 9).Draw(t, "all") == 0 {
					l.All()
					wake(slices.Clone(line)...)
				}
			case 5:
				if len(coming) > 0 {
					w := coming[0]
					coming = coming[1:]
					if rapid.Bool().Draw(t, "received") {
						<-w.Wake
					}
					came(w, true)
				}
			case 6:
				if len(line) > 0 {
					w := line[len(line)-1]
					line = line[:len(line)-1]
					came(w, false)
				}
			}
			some := slices.ContainsFunc(append(slices.Clone(line), coming...), func(w *waiter) bool { return starving[w] })
			if l.Empty() != (len(line) == 0) || l.Quiet() != (len(line) == 0 || len(coming) > 0) || l.Starving() != some {
				t.Fatalf("empty %v, quiet %v, starving %v, with %d in line and %d coming", l.Empty(), l.Quiet(), l.Starving(), len(line), len(coming))
			}
			waiting, err := l.Check()
			if waiting != len(line) || (err == nil) != (len(coming) == 0) {
				t.Fatalf("Check says %d, %v, with %d in line and %d coming", waiting, err, len(line), len(coming))
			}
		}
	})
}

// TestAlarm holds a Line to its earliest alarm, and to one waiter that it wakes.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var l local.Line[int]
		began := time.Now()
		var rang []time.Duration
		ring := func() {
			mu.Lock()
			defer mu.Unlock()
			l.Rang()
			rang = append(rang, time.Since(began))
		}
		first, second := local.NewWaiter(1), local.NewWaiter(2)
		mu.Lock()
		l.Join(first, false)
		l.Join(second, false)
		l.SetAlarm(time.Time{}, began, ring) // nothing is due
		l.SetAlarm(began.Add(2*time.Second), began, ring)
		l.SetAlarm(began.Add(time.Second), began, ring)
		l.SetAlarm(began.Add(3*time.Second), began, ring)
		mu.Unlock()
		<-first.Wake
		time.Sleep(time.Hour)
		mu.Lock()
		if want := []time.Duration{time.Second}; !slices.Equal(rang, want) {
			t.Errorf("it rang at %v, want %v", rang, want)
		}
		select {
		case <-second.Wake:
			t.Error("two were woken")
		default:
		}
		l.SetAlarm(time.Now().Add(time.Second), time.Now(), ring)
		l.StopAlarm()
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(rang) != 1 || !l.Alarm().IsZero() {
			t.Errorf("an alarm that was stopped rang at %v, and is set for %v", rang[1:], l.Alarm())
		}
	})
}
