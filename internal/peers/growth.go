package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/catchment-events/catchment/provider/memory"
)

// A growth is what publishing costs a system when there is little, and when
// there is much.
type growth struct {
	system, of   string
	small, large int
	each         [2][]time.Duration // for an event, small and large
}

// cost is the median of what an event costs, small and large.
func (g growth) cost() (small, large time.Duration) {
	same := func(d time.Duration) time.Duration { return d }
	return median(g.each[0], same), median(g.each[1], same)
}

// ratio is how many times as much an event costs when there is much: the median
// of the turns.
func (g growth) ratio() float64 {
	var ratios []float64
	for i := range g.each[0] {
		ratios = append(ratios, div(float64(g.each[1][i]), float64(g.each[0][i])))
	}
	return median(ratios, func(v float64) float64 { return v })
}

// What is measured at a time, and how often in a round.
const (
	growthEvents = 1000
	growthTurns  = 4
)

// growths measures by turns a small and a large broker.
func (m *machine) growths(ctx context.Context, r *results) error {
	inMemory := func(opts memory.Options) func(context.Context, site) (*link, error) {
		return func(context.Context, site) (*link, error) { return brokerLink(memory.New(&opts)), nil }
	}
	small := max(m.growth/100, 1)
	bound := 2*m.growth + 100*growthEvents*m.rounds
	for _, c := range []struct {
		growth
		open func(context.Context, site) (*link, error)
		fill func(context.Context, *link, int) error
	}{
		{growth{system: "catchment memory", of: "events stored", small: small, large: m.growth}, inMemory(memory.Options{MaxEvents: bound, MaxBytes: 1 << 40}), fillLog},
		{growth{system: "catchment memory", of: "ids in the deduplication window", small: small, large: m.growth},
			inMemory(memory.Options{MaxEvents: small, DiscardOldest: true}), fillLog},
		{growth{system: "catchment memory", of: "subscriptions", small: 1, large: 1000}, inMemory(memory.Options{}), addSubscriptions},
		{growth{system: "catchment jetstream", of: "events stored", small: small, large: m.growth}, openJetStream, fillLog},
		{growth{system: "catchment jetstream", of: "subscriptions", small: 1, large: 1000}, openJetStream, addSubscriptions},
		// What the server makes of it by itself.
		{growth{system: "raw nats.go", of: "events stored", small: small, large: m.growth}, openRaw(false), fillLog},
		{growth{system: "raw nats.go", of: "subscriptions", small: 1, large: 1000}, openRaw(false), addSubscriptions},
	} {
		if !m.match.MatchString("growth/" + c.system + "/" + c.of) {
			continue
		}
		fmt.Fprintf(m.progress, "\r\033[Kgrowth: %s, %s", c.system, c.of)
		g := c.growth
		if err := m.grow(ctx, &g, c.open, c.fill); err != nil {
			return fmt.Errorf("%s, %s: %w", g.system, g.of, err)
		}
		r.growth = append(r.growth, g)
	}
	fmt.Fprintf(m.progress, "\r\033[K")
	return nil
}

func (m *machine) grow(ctx context.Context, g *growth, open func(context.Context, site) (*link, error), fill func(context.Context, *link, int) error) (err error) {
	var links [2]*link
	for i, n := range []int{g.small, g.large} {
		m.sites++
		name := "peers-" + strconv.Itoa(m.sites)
		l, err := open(ctx, site{name: name, url: m.url, dir: filepath.Join(m.dir, name)})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		if err := fill(ctx, l, n); err != nil {
			return err
		}
		links[i] = l
	}
	for range growthTurns * m.rounds {
		for i, l := range links {
			got, err := runPublish(true)(ctx, l, newFeed(growthEvents))
			if err != nil {
				return err
			}
			g.each[i] = append(g.each[i], got.took/growthEvents)
		}
	}
	return nil
}

func fillLog(ctx context.Context, l *link, n int) error {
	return l.publishAll(ctx, newFeed(n), true)
}

// addSubscriptions adds subscriptions that match, and have no member.
func addSubscriptions(ctx context.Context, l *link, n int) error {
	for i := range n {
		if err := l.idle(ctx, "idle-"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}
