package outbox

import (
	"testing"
	"time"
)

// TestPosition has fetches begin where all that may come before has ended, and
// was fetched.
func TestPosition(t *testing.T) {
	var p position
	now := time.Now()
	p.sweepAt = now.Add(time.Hour)
	for i, step := range []struct {
		f    fetched
		want int64 // from where the next begins
	}{
		{fetched{last: 10, ended: 100, number: 101}, 0}, // 10 will be past
		{fetched{last: 20, ended: 101, number: 102}, 0}, // 20 is past now
		{fetched{last: 30, ended: 103, number: 104}, 0}, // which had a number below 104
		{fetched{last: 40, ended: 103, number: 106}, 0}, // 103 may write below 20
		{fetched{}, 0}, // tells nothing
		{fetched{last: 50, ended: 103, number: 999}, 0},
		{fetched{last: 15, ended: 104, number: 1000, full: true}, 15}, // there is more after 15
		{fetched{last: 60, ended: 1000, number: 1001}, 20},
		{fetched{last: 70, ended: 1001, number: 1002}, 15}, // what was seen after the last move
	} {
		if step.f.full || step.f.last > p.seen {
			p.seen = step.f.last
		}
		p.moves(step.f)
		if got, _ := p.from(now); got != step.want {
			t.Errorf("after fetch %d: from %d, want %d", i+1, got, step.want)
		}
	}
	p.back(12)
	if got, _ := p.from(now); got != 11 {
		t.Errorf("after going back: from %d, want 11", got)
	}
	if got, sweep := p.from(now.Add(time.Hour)); got != 0 || !sweep {
		t.Errorf("when it is time for all: from %d, %v", got, sweep)
	}
}
