package outbox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// claims returns what is held, and fetched on top, for the row of the lease:
// whoever takes it over knows what was being tried.
func (s *source) claims(fetched []*entry) string {
	s.mu.Lock()
	list := make([]int64, 0, len(s.ready)+len(s.out)+len(fetched))
	for _, e := range s.ready {
		list = append(list, e.seq)
	}
	for seq := range s.out {
		list = append(list, seq)
	}
	s.mu.Unlock()
	for _, e := range fetched {
		list = append(list, e.seq)
	}
	return formatRanges(list)
}

// formatRanges writes numbers in order, as in "3-7 9".
func formatRanges(list []int64) string {
	slices.Sort(list)
	var b strings.Builder
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j] <= list[j-1]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatInt(list[i], 10))
		if last := list[j-1]; last != list[i] {
			b.WriteString("-" + strconv.FormatInt(last, 10))
		}
		i = j
	}
	return b.String()
}

func parseRanges(text string) (list []int64, err error) {
	for _, field := range strings.Fields(text) {
		first, last, ok := strings.Cut(field, "-")
		if !ok {
			last = first
		}
		from, err := strconv.ParseInt(first, 10, 64)
		to, err2 := strconv.ParseInt(last, 10, 64)
		if err := cmp.Or(err, err2); err != nil {
			return nil, fmt.Errorf("what is claimed: %w", err)
		}
		if to-from > 1<<20 {
			return nil, fmt.Errorf("what is claimed: %s is more than anybody holds", field)
		}
		for n := from; n <= to; n++ {
			list = append(list, n)
		}
	}
	return list, nil
}
