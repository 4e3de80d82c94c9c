package conformance

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// A history is what a workload did to a broker, and what came of it. Judges
// read it, and change nothing.
type history struct {
	seed  uint64
	terms terms
	ops   []*op // in the order in which the calls began

	// What follows from ops: see newHistory.
	published []*op
	byEvent   map[string][]*op // published, by event
	byID      map[string][]*op // published, by id
	byCall    map[int][]*op    // published, by batch
	writes    map[string][]*op // by event
	courses   []*course
	restarts  []*op
	calm      moment // when faults stopped; zero: they did not
	over      moment // when the workload stopped waiting
}

// terms are what the broker promises, and what the workload leaves it.
type terms struct {
	Capability
	window time.Duration // of deduplication
	slack  time.Duration // of ACK-2
	prompt time.Duration // for what takes no time by the contract
	turn   time.Duration // in which a goroutine that can go on does
	bound  time.Duration // for everything to be settled, once faults have stopped
	undone time.Duration // how long before a restart acks can be undone by it
}

// A moment is a time since the history began, and a count: in a bubble a lot
// happens at the same time.
type moment struct {
	at time.Duration
	n  int
}

func (m moment) before(o moment) bool { return m.compare(o) < 0 }

func (m moment) compare(o moment) int { return cmp.Or(cmp.Compare(m.at, o.at), cmp.Compare(m.n, o.n)) }

// never is when a call returns that does not.
var never = moment{at: math.MaxInt64}

type kind string

const (
	opPublish   kind = "publish" // of one event: a call has as many as it has events
	opSubscribe kind = "subscribe"
	opReceive   kind = "receive"
	opAck       kind = "ack"
	opRetry     kind = "retry"
	opReject    kind = "reject"
	opRelease   kind = "release"
	opExtend    kind = "extend"
	opClose     kind = "close"   // of a member, or of the broker
	opWrite     kind = "write"   // to an event, by who published or received it
	opRestart   kind = "restart" // the process with all members dies
	opCalm      kind = "calm"    // faults stop
	opEnd       kind = "end"     // nothing more is waited for
)

// A result is what is known of a call. One that failed changed nothing; of one
// that is unknown, nobody can say.
type result string

const (
	resultOK      result = "ok"
	resultFailed  result = "fail"
	resultUnknown result = "unknown"
)

// content is an event, as a value for each attribute, and one for its data.
type content map[string]string

// An op is one operation.
type op struct {
	kind      kind
	who       string // a publisher or a member
	call, ret moment
	limit     time.Duration // when the call's context ended; 0: it did not
	result    result
	class     string // of the error, as classOf names it
	text      string // of the error

	// Of what concerns an event.
	event   string  // which of the publications: no two have the same
	id      string  // its source and id, which duplicates share
	content content // as it was published, received, or written

	// Of a publish.
	typ          string
	batch, index int // which call, and which of its events

	// Of a subscribe; the name is also that of a receive and a settle.
	sub messaging.Subscription

	// Of a receive, and of a settle.
	delivery int // counts deliveries; 0: nothing was received
	attempt  int
	sequence uint64
	deadline time.Duration         // as Receive or Extend told it
	letter   *messaging.DeadLetter // of a dead letter
	after    time.Duration         // of a retry
	reason   string                // of a reject
}

// String is a line: when, who, what, and with which result.
func (o *op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", o.call.at)
	switch {
	case o.ret == never:
		b.WriteString(" and on")
	case o.ret.at != o.call.at:
		fmt.Fprintf(&b, " to %v", o.ret.at)
	}
	for _, s := range []string{o.who, string(o.kind), o.event, o.sub.Name} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	switch o.kind {
	case opPublish:
		fmt.Fprintf(&b, " type %s id %q", o.typ, o.id)
	case opSubscribe:
		fmt.Fprintf(&b, " Types %v Start %v MaxInFlight %d MaxAttempts %d AckWait %v", o.sub.Types, o.sub.Start, o.sub.MaxInFlight, o.sub.MaxAttempts, o.sub.AckWait)
	case opReceive:
		if o.delivery > 0 {
			fmt.Fprintf(&b, " attempt %d sequence %d deadline %v", o.attempt, o.sequence, o.deadline)
		}
		if o.letter != nil {
			fmt.Fprintf(&b, " %+v", *o.letter)
		}
	case opExtend:
		fmt.Fprintf(&b, " deadline %v", o.deadline)
	case opRetry:
		fmt.Fprintf(&b, " after %v", o.after)
	case opReject:
		fmt.Fprintf(&b, " reason %q", o.reason)
	}
	if o.limit > 0 {
		fmt.Fprintf(&b, " context until %v", o.limit)
	}
	fmt.Fprintf(&b, " %s", o.result)
	if o.text != "" {
		fmt.Fprintf(&b, " (%s)", o.text)
	}
	return b.String()
}

// newHistory makes a history of operations, and works out what follows from
// them. Those that have not returned never will.
func newHistory(seed uint64, t terms, ops []*op) *history {
	h := &history{
		seed: seed, terms: t, ops: ops, over: never,
		byEvent: make(map[string][]*op), byID: make(map[string][]*op), byCall: make(map[int][]*op), writes: make(map[string][]*op),
	}
	slices.SortStableFunc(h.ops, func(a, b *op) int { return a.call.compare(b.call) })
	for _, o := range h.ops {
		switch o.kind {
		case opPublish:
			h.published = append(h.published, o)
			h.byEvent[o.event] = append(h.byEvent[o.event], o)
			h.byID[o.id] = append(h.byID[o.id], o)
			h.byCall[o.batch] = append(h.byCall[o.batch], o)
		case opWrite:
			h.writes[o.event] = append(h.writes[o.event], o)
		case opRestart:
			h.restarts = append(h.restarts, o)
		case opCalm:
			h.calm = o.ret
		case opEnd:
			h.over = o.call
		}
	}
	h.follow()
	return h
}

// opensAt is the time from which on a publication cannot be a duplicate of
// what was published before t [PUB-4].
func (t terms) opensAt(at time.Duration) time.Duration { return at + t.window + time.Second }

// causes are the publications of which one is stored if p returned nil: p, and
// those that it may be a duplicate of.
func (h *history) causes(p *op) []*op {
	out := []*op{p}
	for _, q := range h.byID[p.id] {
		if q != p && q.result != resultFailed && !p.ret.before(q.call) && p.call.at < h.terms.opensAt(q.ret.at) {
			out = append(out, q)
		}
	}
	return out
}

// wants reports whether a subscription has to be delivered p, or what p is a
// duplicate of: whether its types match, and it was there in time.
func (h *history) wants(c *course, p *op) bool {
	if p.result != resultOK || c.sub.DeadLettersOf != "" || !selects(c.sub, p.typ) {
		return false
	}
	return !c.sub.Start.New() || !slices.ContainsFunc(h.causes(p), func(q *op) bool { return q.call.before(c.joins[0].ret) })
}

// selects says by the letter of SUB-8 whether a subscription selects a type.
func selects(sub messaging.Subscription, typ string) bool {
	return len(sub.Types) == 0 || slices.ContainsFunc(sub.Types, func(p string) bool {
		return matchTokens(strings.Split(p, "."), strings.Split(typ, "."))
	})
}

// restarted returns the last restart that began between two moments, or nil.
func (h *history) restarted(from, to moment) *op {
	for _, r := range slices.Backward(h.restarts) {
		if from.before(r.ret) && r.call.before(to) {
			return r
		}
	}
	return nil
}

// crashes is how many restarts may have added an attempt between two moments:
// none where attempts are exact [RCV-2].
func (h *history) crashes(from, to moment) (n int) {
	if h.terms.Has(ExactAttempts) {
		return 0
	}
	for _, r := range h.restarts {
		if from.before(r.ret) && r.call.before(to) {
			n++
		}
	}
	return n
}

// undone reports whether an ack may have been undone before a moment, by a
// restart soon after it [ACK-1].
func (h *history) undone(a *op, before moment) bool {
	if h.terms.Has(ConfirmedAck) {
		return false
	}
	i := slices.IndexFunc(h.restarts, func(r *op) bool { return a.call.before(r.ret) && r.call.before(before) })
	return i >= 0 && h.restarts[i].call.at-a.ret.at <= h.terms.undone
}
