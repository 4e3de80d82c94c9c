package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestFailuresAreNoted(t *testing.T) {
	r := newResults()
	s, w := systems[0], workloads[0]
	r.add(s, w, sample{events: 1, took: 1})
	bad := errors.New("bad")
	r.fail(t.Context(), s, w, bad)
	if err := errors.Join(r.failed...); !errors.Is(err, bad) || !strings.Contains(err.Error(), s.name) {
		t.Errorf("noted %v", err)
	}
	if got := r.rate(s.name, w.name); got != 0 {
		t.Errorf("half of what was measured is reported: %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.fail(ctx, s, w, bad)
	if len(r.failed) != 1 {
		t.Errorf("an interrupt is noted as a failure: %v", r.failed)
	}
}

func fixed() *results {
	r := newResults()
	rate := 1e6
	for _, s := range systems {
		for _, w := range workloads {
			for _, round := range []float64{1, 3, 2} {
				took := time.Duration(1e9 * 1e6 / rate / round)
				r.add(s, w, sample{events: 1e6, took: took, cpu: 2 * took, mallocs: 10e6, waits: []time.Duration{1500, 2500, 90_000}})
			}
		}
		rate /= 2
	}
	for _, c := range []string{ourCodec, sdkCodec} {
		for _, what := range []string{encode, decode} {
			r.codec[key{c, what}] = []sample{{events: 10, took: time.Duration(10 * len(c)), mallocs: 70}}
		}
	}
	r.growth = []growth{{system: "catchment memory", of: "events stored", small: 1, large: 100, each: [2][]time.Duration{{1000, 900, 1100}, {3000, 1350, 110}}}}
	return r
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []int
		want   int
	}{
		{nil, 0},
		{[]int{7}, 7},
		{[]int{9, 1}, 1},
		{[]int{5, 100, 1}, 5},
		{[]int{4, 3, 2, 1}, 2},
	} {
		if got := median(tt.values, func(v int) int { return v }); got != tt.want {
			t.Errorf("median(%v) = %d, want %d", tt.values, got, tt.want)
		}
	}
	if got := fixed().rate("catchment memory", streamOne); got < 1.99e6 || got > 2.01e6 {
		t.Errorf("the median of 1, 3 and 2 M/s is %v", got)
	}
}

func TestRatio(t *testing.T) {
	r := newResults()
	w := workloads[0]
	for _, speed := range []time.Duration{1, 7, 100} {
		r.add(systems[0], w, sample{events: 1000, took: 1000 * speed})
		r.add(systems[1], w, sample{events: 1000, took: 2000 * speed})
	}
	if got := r.ratio(key{systems[0].name, w.name}, key{systems[1].name, w.name}); got != 2 {
		t.Errorf("twice as fast in each round: %v", got)
	}
	if got := r.ratio(key{systems[0].name, w.name}, key{"nobody", w.name}); got != 0 {
		t.Errorf("against nobody: %v", got)
	}
}

func TestQuantile(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := quantile(sorted, q); got != want {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
