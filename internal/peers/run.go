package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A machine measures systems one at a time.
type machine struct {
	options
	url      string
	dir      string
	progress io.Writer
	sites    int
}

// longest is when one measurement is given up.
const longest = time.Minute

// workloads measures every system with every workload: one round of all the
// systems, then the next, so that what else the machine does meets all of them.
// A system that fails is left out from then on, and noted.
func (m *machine) workloads(ctx context.Context, r *results) error {
	for _, group := range groups {
		for _, w := range workloads {
			type entry struct {
				system
				n int
			}
			var entries []entry
			for _, s := range systems {
				if s.group != group.name || !m.match.MatchString(s.group+"/"+s.name+"/"+w.name) {
					continue
				}
				n, err := m.size(ctx, s, w, group.least)
				if errors.Is(err, errNotOffered) {
					continue
				}
				if err != nil {
					r.fail(ctx, s, w, err)
					continue
				}
				entries = append(entries, entry{s, n})
			}
			for round := range m.rounds {
				fmt.Fprintf(m.progress, "\r\033[K%s, %s: round %d of %d", group.name, w.name, round+1, m.rounds)
				entries = slices.DeleteFunc(entries, func(e entry) bool {
					got, err := m.measure(ctx, e.system, w, e.n)
					if err != nil {
						r.fail(ctx, e.system, w, err)
						return true
					}
					r.add(e.system, w, got)
					return false
				})
				if err := ctx.Err(); err != nil {
					return err
				}
			}
		}
	}
	fmt.Fprintf(m.progress, "\r\033[K")
	return nil
}

var errNotOffered = errors.New("the system does not offer it")

// measure runs a workload once, on an empty system.
func (m *machine) measure(ctx context.Context, s system, w workload, n int) (got sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	m.sites++
	name := fmt.Sprintf("peers-%d", m.sites)
	dir := filepath.Join(m.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := s.open(ctx, site{name: name, url: m.url, dir: dir, stored: w.stored})
	if err != nil {
		return sample{}, fmt.Errorf("open: %w", err)
	}
	defer func() {
		if e := l.close(); e != nil {
			err = errors.Join(err, fmt.Errorf("close: %w", e))
		}
	}()
	if !w.offers(l) {
		return sample{}, errNotOffered
	}
	return w.run(ctx, l, newFeed(n))
}

// size is how many events a measurement has to have so that it takes about as
// long as it should. What it measures on the way warms up.
func (m *machine) size(ctx context.Context, s system, w workload, least int) (int, error) {
	for n := min(least, w.most); ; n = min(4*n, w.most) {
		fmt.Fprintf(m.progress, "\r\033[K%s, %s, %s: sizing", s.group, w.name, s.name)
		got, err := m.measure(ctx, s, w, n)
		if err != nil {
			return 0, err
		}
		if n == w.most {
			return n, nil
		}
		if got.took >= m.each/4 {
			fits := int(float64(m.each) / float64(got.took) * float64(n))
			return min(max(fits, least), w.most), nil
		}
	}
}
