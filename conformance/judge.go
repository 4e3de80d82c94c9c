package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// A judge looks in a history for a breach of one guarantee. It does not know
// how the history came about, and says nothing about what nobody can know: a
// call whose outcome is unknown, or what the capabilities leave open.
type judge struct {
	name string
	ids  []string // the requirements that it holds a broker to
	find func(*history) *verdict
}

// A verdict is a breach, with the operations that prove it.
type verdict struct {
	id   string // of the requirement
	text string
	ops  []*op
}

// breach returns a verdict. Operations that are nil are left out.
func breach(id string, ops []*op, format string, args ...any) *verdict {
	v := &verdict{id: id, text: fmt.Sprintf(format, args...)}
	for _, o := range ops {
		if o != nil && !slices.Contains(v.ops, o) {
			v.ops = append(v.ops, o)
		}
	}
	slices.SortStableFunc(v.ops, func(a, b *op) int { return a.call.compare(b.call) })
	return v
}

// judges are all that judge a history.
var judges = []judge{
	{"lost", []string{"PUB-1"}, judgeLost},
	{"unexpected", []string{"EVT-3"}, judgeUnexpected},
	{"aborted", []string{"PUB-6"}, judgeAborted},
	{"after-ack", []string{"ACK-1"}, judgeAfterAck},
	{"overlap", []string{"SUB-5", "ACK-2"}, judgeOverlap},
	{"attempt", []string{"RCV-2"}, judgeAttempt},
	{"fidelity", []string{"EVT-3"}, judgeFidelity},
	{"isolation", []string{"EVT-4", "EVT-5"}, judgeIsolation},
	{"window", []string{"RCV-4"}, judgeWindow},
	{"filter", []string{"SUB-8"}, judgeFilter},
	{"dedup", []string{"PUB-3", "PUB-4"}, judgeDedup},
	{"order", []string{"PUB-2", "RCV-3"}, judgeOrder},
	{"start", []string{"SUB-2", "SUB-3"}, judgeStart},
	{"fairness", []string{"SUB-5"}, judgeFairness},
	{"fencing", []string{"ACK-7"}, judgeFencing},
	{"liveness", []string{"PUB-1", "ACK-2", "ACK-9"}, judgeLiveness},
	{"backoff", []string{"ACK-3"}, judgeBackoff},
	{"dead letter", []string{"DLQ-1", "DLQ-2", "DLQ-4", "ACK-4"}, judgeDeadLetter},
	{"shutdown", []string{"CLS-1", "CLS-2", "RCV-1"}, judgeShutdown},
	{"context", []string{"RCV-1", "PUB-6", "CLS-1"}, judgeContext},
	{"names", []string{"SUB-7"}, judgeNames},
	{"batch", []string{"PUB-5"}, judgeBatch},
}

// failure is what a judge that found something says: the requirement, its
// sentence, what happened, and how to make it happen again.
func (j judge) failure(h *history, v *verdict) string {
	var b strings.Builder
	i := slices.IndexFunc(requirements, func(r Requirement) bool { return r.ID == v.id })
	fmt.Fprintf(&b, "%s (%s)\n%s\nseed %d: %s", v.id, j.name, requirements[i].Text, h.seed, v.text)
	for _, o := range v.ops {
		fmt.Fprintf(&b, "\n\t%v", o)
	}
	fmt.Fprintf(&b, "\nTo run it again: %s=%d", seedVariable, h.seed)
	return b.String()
}
