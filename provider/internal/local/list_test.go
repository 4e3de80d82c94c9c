package local_test

import (
	"container/heap"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/catchment-events/catchment/provider/internal/local"
)

type element struct {
	at, turn int
	local.Links[*element]
}

func (e *element) Before(other *element) bool { return e.at < other.at }

// later is before another if it is earlier, or came first.
type later element

func (e *later) Before(other *later) bool {
	return e.at < other.at || e.at == other.at && e.turn < other.turn
}

// TestList drives a List and a slice that is sorted anew each time.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l local.List[*element]
		var want, gone []*element
		for turn := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0, 1:
				e := &element{at: rapid.IntRange(0, 9).Draw(t, "at"), turn: turn}
				l.Insert(e)
				want = append(want, e)
				slices.SortStableFunc(want, func(a, b *element) int { return a.at - b.at })
			case 2:
				if len(want) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(want)-1).Draw(t, "index")
				l.Remove(want[i])
				gone = append(gone, want[i])
				want = slices.Delete(want, i, i+1)
			}
			for _, e := range gone {
				l.Remove(e) // does nothing
				if l.Has(e) {
					t.Fatal("it has what was removed")
				}
			}
			var got []*element
			for e := l.Front(); e != nil; e = e.After() {
				if !l.Has(e) {
					t.Fatal("it does not have what it lists")
				}
				got = append(got, e)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%d elements in another order than %d", len(got), len(want))
			}
		}
	})
}

func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q local.Queue[*later]
		var want []int
		for turn, at := range rapid.SliceOf(rapid.IntRange(0, 9)).Draw(t, "ats") {
			heap.Push(&q, &later{at: at, turn: turn})
			want = append(want, at*1000+turn)
		}
		slices.Sort(want)
		var got []int
		for q.Len() > 0 {
			e := heap.Pop(&q).(*later)
			got = append(got, e.at*1000+e.turn)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	})
}
