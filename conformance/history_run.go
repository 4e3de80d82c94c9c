package conformance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// historyPart is the subtest of a Run that is of histories.
const historyPart = "history"

// seedVariable names the seed of the only workload to run.
const seedVariable = "CATCHMENT_CONFORMANCE_SEED"

// How many workloads a Run has: in bubbles they cost a little computing, and on
// a server it has more to do the more there are.
const (
	workloadsInBubbles = 4
	workloadsOnServers = 2
)

// seeds are new for each Run, unless the environment says otherwise.
func (s *suite) seeds() ([]uint64, error) {
	if v := os.Getenv(seedVariable); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", seedVariable, err)
		}
		return []uint64{seed}, nil
	}
	seeds := make([]uint64, workloadsOnServers)
	if s.Bubble {
		seeds = make([]uint64, workloadsInBubbles)
	}
	for i := range seeds {
		seeds[i] = uint64(rand.Uint32())
	}
	return seeds, nil
}

// histories runs workloads, and lets each judge judge what came of them.
func (s *suite) histories(t *testing.T) {
	seeds, err := s.seeds()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*history, len(seeds))
	s.each(t, len(seeds), func(i int) string { return fmt.Sprintf("workload_%d", i+1) }, func(t *testing.T, i int) {
		var err error
		if all[i], err = s.workload(t, seeds[i]); err != nil {
			t.Errorf("a workload of seed %d came to no end: %v\nTo run it again: %s=%[1]d", seeds[i], err, seedVariable)
		}
	})
	for _, j := range judges {
		t.Run(strings.ReplaceAll(j.name, " ", "_"), func(t *testing.T) { s.judge(t, j, all) })
	}
}

// workload runs one. Without an error there is a history, unless the harness
// has ended the test.
func (s *suite) workload(t *testing.T, seed uint64) (h *history, err error) {
	err = s.check(t, check{name: "workload", do: func(e *env) { h = record(e, seed) }})
	return h, err
}

// judge judges histories; nil ones are left out.
func (s *suite) judge(t *testing.T, j judge, all []*history) {
	result := "not run"
	note := func(r string) {
		if weight[r] > weight[result] {
			result = r
		}
	}
	for _, h := range all {
		if h == nil {
			continue
		}
		v := j.find(h)
		if v == nil {
			note("passed")
			continue
		}
		if reason, ok := s.Deviations[v.id]; ok {
			note("deviates")
			t.Logf("deviates, as declared (%s): %s", reason, j.failure(h, v))
			continue
		}
		note("failed")
		t.Error(j.failure(h, v))
	}
	s.report.note(historyPart, j.name, result, "", 0)
	if result == "not run" {
		t.Skip("no workload has left a history to judge: their own failures say why")
	}
}
