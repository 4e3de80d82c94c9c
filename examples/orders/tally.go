package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A key is what makes an event itself and no other.
type key struct{ source, id string }

func keyOf(e event.Event) key { return key{e.Source(), e.ID()} }

// A tally keeps account of a run: what it published, and what became of that in
// each subscription. It sees the one through a publisher, the other through
// observers, and knows nothing of brokers or services.
type tally struct {
	mu sync.Mutex
	// Below: under mu.
	published map[key]time.Time // by this run, and when first
	again     int               // published once more
	accounts  []*account
	moves     int // grows with whatever happens
}

// An account is what a tally knows of one subscription.
type account struct {
	name     string
	selects  func(typ string) bool
	expected int          // events of this run that it selects
	open     map[key]bool // of those, what has neither been acked nor rejected
	ended    map[key]bool // acked or rejected here, in this run

	delivered, acked, retried, rejected int

	before    int             // acked or rejected, and not of this run
	elsewhere int             // of this run, but not seen here: an earlier run or another process had them
	twice     int             // acked or rejected once more
	latencies []time.Duration // from publish to ack
}

func newTally() *tally { return &tally{published: make(map[key]time.Time)} }

// observer opens an account for a subscription and returns what fills it, from
// all of its members.
func (t *tally) observer(sub messaging.Subscription) *messaging.Observer {
	a := &account{name: sub.Name, open: make(map[key]bool), ended: make(map[key]bool)}
	pattern, err := event.ParsePattern(sub.Types...)
	a.selects = func(typ string) bool { return err == nil && pattern.Match(typ) }
	if sub.DeadLettersOf != "" {
		a.name = sub.DeadLettersOf + " " + sub.Name
		a.selects = func(string) bool { return false } // nothing is published there
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accounts = append(t.accounts, a)
	return &messaging.Observer{
		Received: func(event.Event, reactor.Info) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.moves++
			a.delivered++
		},
		Settled: func(e event.Event, info reactor.Info, s reactor.Settlement) {
			if s.Err != nil {
				return
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.moves++
			t.settled(a, keyOf(e), info, s.Outcome.Result)
		},
	}
}

// settled notes how a delivery ended. t.mu is held.
func (t *tally) settled(a *account, k key, info reactor.Info, result reactor.Result) {
	switch {
	case result == reactor.Acked:
		a.acked++
	case result == reactor.Rejected, result == reactor.Retried && info.Last():
		a.rejected++
	case result == reactor.Retried:
		a.retried++
		return
	default:
		return // released, at the end of a run
	}
	switch {
	case a.open[k]:
		delete(a.open, k)
		if result == reactor.Acked {
			a.latencies = append(a.latencies, time.Since(t.published[k]))
		}
	case a.ended[k]:
		a.twice++
	default:
		a.before++
	}
	a.ended[k] = true
}

// publisher returns p, with what it publishes accounted for.
func (t *tally) publisher(p messaging.Publisher) messaging.Publisher {
	return accountant{p, t}
}

type accountant struct {
	messaging.Publisher
	tally *tally
}

func (a accountant) Publish(ctx context.Context, events ...event.Event) error {
	// Before they are stored, for they may be handled before Publish returns.
	first := a.tally.publishing(events)
	err := a.Publisher.Publish(ctx, events...)
	if err != nil {
		a.tally.refused(events, first, err)
	}
	return err
}

// publishing notes events that are about to be published, and returns for each
// whether it is the first time.
func (t *tally) publishing(events []event.Event) []bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moves++
	first := make([]bool, len(events))
	for i, e := range events {
		k := keyOf(e)
		if _, ok := t.published[k]; ok {
			t.again++
			continue
		}
		first[i] = true
		t.published[k] = time.Now()
		for _, a := range t.accounts {
			if a.selects(e.Type()) {
				a.expected++
				a.open[k] = true
			}
		}
	}
	return first
}

// refused takes back those events of a failed Publish that are not stored.
func (t *tally) refused(events []event.Event, first []bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	batch, several := errors.AsType[*reactor.BatchError](err)
	for i, e := range events {
		cause := err
		if several {
			cause = batch.Errors[i]
		}
		if !first[i] || cause == nil || errors.Is(cause, messaging.ErrUnknown) {
			continue
		}
		k := keyOf(e)
		delete(t.published, k)
		for _, a := range t.accounts {
			if a.open[k] {
				a.expected--
				delete(a.open, k)
			}
		}
	}
}

// movement returns a number that stays the same while nothing happens.
func (t *tally) movement() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moves
}

// unsettled returns what was published and is not settled everywhere.
func (t *tally) unsettled() map[key]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	open := make(map[key]bool)
	for _, a := range t.accounts {
		for k := range a.open {
			open[k] = true
		}
	}
	return open
}

// elsewhere closes the accounts of events that somebody else has settled.
func (t *tally) elsewhere(keys map[key]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.accounts {
		for k := range keys {
			if a.open[k] {
				delete(a.open, k)
				a.elsewhere++
			}
		}
	}
}

// progress is the tally in a line.
func (t *tally) progress() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "published %d", len(t.published))
	for _, a := range t.accounts {
		fmt.Fprintf(&b, ", %s %d", a.name, len(a.ended))
	}
	return b.String()
}

// table is the tally at the end.
func (t *tally) table() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "subscription\tevents\tdelivered\tacked\tretried\trejected\tbefore\telsewhere\ttwice\tleft\tp50\tp99\t")
	for _, a := range t.accounts {
		slices.Sort(a.latencies)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", a.name, a.expected,
			a.delivered, a.acked, a.retried, a.rejected, a.before, a.elsewhere, a.twice, len(a.open),
			percentile(a.latencies, 50), percentile(a.latencies, 99))
	}
	w.Flush() // to memory
	sum := func(count func(*account) int) (n int) {
		for _, a := range t.accounts {
			n += count(a)
		}
		return n
	}
	for _, line := range []struct {
		n    int
		text string
	}{
		{t.again, "%d events were published once more, which stores nothing"},
		{sum(func(a *account) int { return a.before }), "before: %d were published earlier, or by somebody else, and handled now"},
		{sum(func(a *account) int { return a.elsewhere }), "elsewhere: %d were published now, and handled earlier, or by somebody else"},
		{sum(func(a *account) int { return a.twice }), "twice: %d were handled more than once"},
	} {
		if line.n > 0 {
			fmt.Fprintf(&b, line.text+"\n", line.n)
		}
	}
	return b.String()
}

// percentile returns the smallest of the sorted values that p percent of them
// do not exceed.
func percentile(sorted []time.Duration, p int) string {
	if len(sorted) == 0 {
		return "-"
	}
	d := sorted[(len(sorted)*p+99)/100-1]
	return d.Round(max(10*time.Microsecond, d.Truncate(time.Second)/100)).String()
}
