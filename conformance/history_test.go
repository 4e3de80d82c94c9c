package conformance

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// testTerms are those of histories that are written by hand.
var testTerms = terms{
	Capability: OrderedPublish | ExactAttempts | ConfirmedAck | Fenced,
	window:     time.Second,
	slack:      10 * time.Millisecond,
	prompt:     50 * time.Millisecond,
	turn:       time.Millisecond,
	bound:      300 * time.Millisecond,
	undone:     20 * time.Millisecond,
}

// written reads a history: operations with semicolons between them, such as
//
//	sub s @0 max=1; pub a @1-2; get s a#1 @3; ack s a @4; end @500
//
// Times are in milliseconds, of the call and of its return. What is left out is
// what it usually is: a call that succeeds at once, by publisher p or member m,
// attempt 1, the content that was published, a deadline 100 ms later. A settle
// is of the last delivery of the event, or of the one that n counts from 1.
// "none" takes the broker's capabilities away.
func written(t *testing.T, text string) *history {
	t.Helper()
	w := &writing{T: t, terms: testTerms, subs: make(map[string]messaging.Subscription), published: make(map[string]*op)}
	for one := range strings.SplitSeq(text, ";") {
		if fields := strings.Fields(one); len(fields) > 0 {
			w.op(fields[0], fields[1:])
		}
	}
	return newHistory(1, w.terms, w.ops)
}

type writing struct {
	*testing.T
	terms     terms
	ops       []*op
	subs      map[string]messaging.Subscription
	published map[string]*op
	got       []*op
}

var verbs = map[string]kind{
	"pub": opPublish, "sub": opSubscribe, "get": opReceive, "ack": opAck, "retry": opRetry, "reject": opReject, "release": opRelease,
	"extend": opExtend, "close": opClose, "write": opWrite, "restart": opRestart, "calm": opCalm, "end": opEnd,
}

func (w *writing) op(verb string, args []string) {
	w.Helper()
	if verb == "none" {
		w.terms.Capability = 0
		return
	}
	o := &op{kind: verbs[verb], who: "m", result: resultOK}
	if o.kind == "" {
		w.Fatalf("no operation %q", verb)
	}
	if o.kind == opPublish {
		o.who = "p"
	}
	var names []string
	settings := make(map[string]string)
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		switch {
		case ok:
			settings[name] = value
		case arg[0] == '@':
			call, ret, both := strings.Cut(arg[1:], "-")
			o.call = moment{at: w.ms(call)}
			if o.ret = o.call; both && ret == "" {
				o.ret, o.result = never, resultUnknown
			} else if both {
				o.ret = moment{at: w.ms(ret)}
			}
		case arg == "fail":
			o.result = resultFailed
		case arg == "unknown":
			o.result = resultUnknown
		case arg == "new":
			o.sub.Start = messaging.StartNew()
		default:
			names = append(names, arg)
		}
	}
	w.name(o, names)
	for name, value := range settings {
		w.set(o, name, value)
	}
	switch {
	case o.kind == opSubscribe && o.result == resultOK:
		w.subs[o.sub.Name] = o.sub
	case o.kind == opPublish:
		w.published[o.event] = o
	case o.kind == opReceive && o.event != "":
		w.got = append(w.got, o)
		o.delivery = len(w.got)
	}
	w.ops = append(w.ops, o)
}

// name fills in what follows from the names of a subscription and an event.
func (w *writing) name(o *op, names []string) {
	switch {
	case o.kind == opSubscribe:
		o.sub.Name, o.sub.AckWait = names[0], 100*time.Millisecond
	case o.kind == opPublish:
		o.event, o.id, o.typ, o.batch = names[0], names[0], "t", -len(w.ops)-1
		o.content = content{"id": names[0], "data": names[0]}
	case o.kind == opWrite:
		o.event, o.content = names[0], content{}
	case o.kind == opClose && names[0] == "broker":
		o.who = "broker"
	case len(names) > 0:
		o.sub = w.subs[names[0]]
		o.deadline = o.ret.at + o.sub.AckWait
		if len(names) == 1 {
			break
		}
		event, attempt, _ := strings.Cut(names[1], "#")
		o.event, o.attempt = event, max(1, w.number("0"+attempt))
		if o.kind == opReceive {
			o.content = content{}
			if p := w.published[event]; p != nil {
				o.content = content{"id": p.content["id"], "data": p.content["data"]}
			}
		} else {
			w.settles(o, 0)
		}
	}
}

// settles makes o a settle of the n-th delivery of its event, or the last.
func (w *writing) settles(o *op, n int) {
	o.delivery = 0
	for _, d := range w.got {
		if d.sub.Name == o.sub.Name && d.event == o.event && n >= 0 {
			o.delivery, o.who = d.delivery, d.who
			if n--; n == 0 {
				return
			}
		}
		n = max(n, 0)
	}
}

func (w *writing) set(o *op, name, value string) {
	switch name {
	case "who":
		o.who = value
	case "id":
		o.id = value
		o.content["id"] = value[strings.LastIndex(value, "/")+1:]
	case "type":
		o.typ = value
	case "batch":
		o.batch, o.index = w.number(value), len(w.ops)
	case "max":
		o.sub.MaxInFlight = w.number(value)
	case "cap":
		o.sub.MaxAttempts = w.number(value)
	case "types":
		o.sub.Types = strings.Split(value, ",")
	case "of":
		o.sub.DeadLettersOf = value
	case "err":
		o.class, o.result = value, resultFailed
	case "limit":
		o.limit = w.ms(value)
	case "to":
		o.deadline = w.ms(value)
	case "after":
		o.after = w.ms(value)
	case "reason":
		o.reason = value
	case "n":
		w.settles(o, w.number(value))
	case "letter":
		of, attempts, _ := strings.Cut(value, "/")
		attempts, reason, _ := strings.Cut(attempts, "/")
		o.letter = &messaging.DeadLetter{Subscription: of, Attempts: w.number(attempts), Reason: reason, Stored: time.Unix(1, 0), Died: time.Unix(1, 0)}
	case "data", "note":
		o.content[name] = value
	default:
		w.Fatalf("no setting %q", name)
	}
}

func (w *writing) number(s string) int {
	w.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *writing) ms(s string) time.Duration { return time.Duration(w.number(s)) * time.Millisecond }

// served writes n events that member o of subscription s receives and acks, one
// after the other from 10 ms on.
func served(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "; pub e%d @1; get s e%[1]d @%d who=o; ack s e%[1]d @%[2]d", i, 10+i)
	}
	return b.String()
}
