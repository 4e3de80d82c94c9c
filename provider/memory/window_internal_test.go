package memory

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestWindow holds the window to a map of times, with few keys that come again and
// again, many that collide, and times that pass in steps.
func TestWindow(t *testing.T) {
	const length = 100 * time.Millisecond
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWindow(length)
		now := time.Now()
		type note struct {
			at time.Time
			ok bool
		}
		stored := make(map[key]note)
		keys := 1 + random.Uint64N(3000)
		for step := range 20_000 {
			// Those of a kind share part and home, and often the fingerprint.
			n := random.Uint64N(keys)
			k := key{n%7 + n/50<<20 | 1<<60, n % 50 % 3}
			before := stored[k]
			want := before.ok && now.Sub(before.at) < length
			if got := w.has(k, now); got != want {
				t.Fatalf("seed %d, step %d: has is %v, want %v", seed, step, got, want)
			}
			if !want {
				w.add(k, now)
				stored[k] = note{now, true}
				if random.IntN(20) == 0 {
					w.undo(k)
					delete(stored, k)
				}
			}
			if random.IntN(10) == 0 {
				w.forget(now, random.IntN(40))
			}
			if random.IntN(100) == 0 {
				now = now.Add(time.Duration(random.IntN(int(length))))
			}
		}
		w.forget(now.Add(length), 1<<30)
		for i, p := range w.where {
			if p.used != 0 || w.ids.len() != 0 {
				t.Fatalf("seed %d: %d keys left in part %d of the index, %d in all", seed, p.used, i, w.ids.len())
			}
		}
	}
}

// TestWindowStartsAnew takes the numbers of places over their end.
func TestWindowStartsAnew(t *testing.T) {
	w := newWindow(time.Second)
	w.gone = 1<<32 - 5
	now := time.Now()
	for i := range uint64(100) {
		now = now.Add(200 * time.Millisecond)
		w.forget(now, 1)
		w.add(key{i, i}, now)
		for j := range i + 1 {
			if got, want := w.has(key{j, j}, now), i-j < 5; got != want {
				t.Fatalf("after %d: has %d is %v, want %v", i, j, got, want)
			}
		}
	}
}

// TestPages holds pages to a slice.
func TestPages(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 2))
		var p pages[int]
		var want []int
		for step := range 20_000 {
			push := 3 + 2*(step/4000%2) // of 8
			switch n := random.IntN(8); {
			case n < push:
				*p.push() = step
				want = append(want, step)
			case len(want) == 0:
			case n == 7:
				p.popBack()
				want = want[:len(want)-1]
			default:
				p.popFront()
				want = want[1:]
			}
			if p.len() != len(want) {
				t.Fatalf("step %d: %d values, want %d", step, p.len(), len(want))
			}
			if most := len(want)/pageLen + 2; len(p.list) > most {
				t.Fatalf("step %d: %d pages for %d values", step, len(p.list), len(want))
			}
			for _, i := range []int{0, len(want) - 1, random.IntN(len(want) + 1)} {
				if i >= 0 && i < len(want) && *p.at(i) != want[i] {
					t.Fatalf("step %d: value %d is %d, want %d", step, i, *p.at(i), want[i])
				}
			}
		}
	}
}
