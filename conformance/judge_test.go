package conformance

import (
	"slices"
	"strings"
	"testing"
)

func TestJudges(t *testing.T) {
	for _, j := range judges {
		for _, text := range judged[j.name].good {
			h := written(t, text)
			if v := j.find(h); v != nil {
				t.Errorf("%s: %s\nis good, and the judge says:\n%s", j.name, text, j.failure(h, v))
			}
		}
		for _, text := range judged[j.name].bad {
			h := written(t, text)
			v := j.find(h)
			if v == nil {
				t.Errorf("%s: %s\nis bad, and the judge finds nothing", j.name, text)
				continue
			}
			if !slices.Contains(j.ids, v.id) {
				t.Errorf("%s: %s\nproves %s, which is not among the judge's %v", j.name, text, v.id, j.ids)
			}
			if len(v.ops) == 0 || len(v.ops) > 6 {
				t.Errorf("%s: %s\nhas %d operations for proof", j.name, text, len(v.ops))
			}
		}
	}
}

// A judge that is taken out is missed, and so is one that is not tried.
func TestEveryJudgeIsTried(t *testing.T) {
	names := make(map[string]bool)
	for _, j := range judges {
		names[j.name] = true
		if c := judged[j.name]; len(c.good) < 2 || len(c.bad) < 2 {
			t.Errorf("%s has %d good and %d bad histories, want two of each at least", j.name, len(c.good), len(c.bad))
		}
		if !slices.ContainsFunc(found, func(f finds) bool { return f.judge == j.name }) {
			t.Errorf("there is no broker with a fault for %s to find", j.name)
		}
		for _, id := range j.ids {
			if !slices.ContainsFunc(requirements, func(r Requirement) bool { return r.ID == id }) {
				t.Errorf("%s proves %s, which the contract does not have", j.name, id)
			}
		}
	}
	for name := range judged {
		if !names[name] {
			t.Errorf("there are histories for %s, which is no judge", name)
		}
	}
}

func TestFailureOfAJudge(t *testing.T) {
	h := written(t, "sub s @0; pub a @1-2; get s a @3; ack s a @4; get s a @5-6")
	j := judgeNamed(t, "after-ack")
	got := j.failure(h, j.find(h))
	for _, want := range []string{
		"ACK-1 (after-ack)\nAfter Ack returned nil, no Receive begun later on the subscription returns that stored event.",
		"\nseed 1: a was delivered to s after it was acked\n\t3ms m receive a s attempt 1 sequence 0 deadline 103ms ok\n\t4ms m ack a s ok\n\t5ms to 6ms m receive a s ",
		"\nTo run it again: CATCHMENT_CONFORMANCE_SEED=1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nhas no %q", got, want)
		}
	}
}
