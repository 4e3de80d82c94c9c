package conformance

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// A workload does to a broker what services do, and worse, and writes down what
// comes of it.
type workload struct {
	*env
	seed          uint64
	rec           *recorder
	calm          atomic.Bool // faults have stopped
	tags, batches atomic.Int64
	names         map[string]string // of subscriptions, by profile
	members       []*member         // open; of the conductor
	waits         []func()          // for what the conductor has started

	mu sync.Mutex
	// Below: under mu.
	broker  Broker
	process context.Context // ends when it dies
	kill    context.CancelFunc
}

// span is how long events are published, in AckWaits.
const span = 2

// enough operations show that a broker is at fault: a workload has a few
// thousand, and one in which nothing ends is not to go on for long.
const enough = 20_000

// record runs a workload in a new broker, and returns its history.
func record(e *env, seed uint64) *history {
	w := &workload{env: e, seed: seed, names: make(map[string]string)}
	w.rec = newRecorder(e.ctx, seed, w.terms())
	w.run()
	return w.rec.history()
}

func (w *workload) terms() terms {
	return terms{
		Capability: w.Capabilities,
		window:     w.Duplicates,
		slack:      w.Slack,
		prompt:     w.prompt(),
		turn:       w.AckWait / 200,
		bound:      w.roomy() + 2*w.AckWait + 2*w.Slack + w.prompt(),
		undone:     w.AckWait,
	}
}

// roomy is an AckWait that is worth waiting for, should a process die.
func (w *workload) roomy() time.Duration {
	if w.Bubble {
		return 20 * w.AckWait
	}
	return 3 * w.AckWait
}

// run is the conductor.
func (w *workload) run() {
	w.begin("a workload of seed %d", w.seed)
	w.live(w.openBroker())
	for i := range profiles {
		if w.names[profiles[i].name] = w.id + "-" + profiles[i].name; !profiles[i].late {
			w.join(&profiles[i])
		}
	}
	var publishers []func()
	for _, name := range []string{"ann", "bob", "cy", "dee"} {
		publishers = append(publishers, w.async(func() { w.publisher(name).run(span * w.AckWait) }))
	}
	w.disturb(draw(w.seed, "conductor"))
	for _, wait := range publishers {
		wait()
	}
	w.calm.Store(true)
	w.rec.mark(opCalm)
	for i := range profiles {
		w.join(&profile{name: "letters", members: 1, hands: 1, roomy: true, sub: messaging.Subscription{
			Name: w.names[profiles[i].name] + "-dead", DeadLettersOf: w.names[profiles[i].name],
		}})
	}
	w.settle()
	w.afterwards()
	w.settle()
	w.pause(w.AckWait + w.Slack + w.AckWait/10) // nothing more should come
	w.rec.mark(opEnd)
	w.shutDown()
}

// disturb does what befalls members while events are published.
func (w *workload) disturb(r *rand.Rand) {
	const steps = 8
	for i := range steps {
		w.pause(span * w.AckWait / (steps + 1))
		switch {
		case i == 2:
			for j := range profiles {
				if profiles[j].late {
					w.join(&profiles[j])
				}
			}
		case i == 4 && w.Restart != nil:
			w.restart()
		default:
			w.replace(r)
		}
	}
}

// replace lets a member of each subscription that has churn leave, before or
// after another joins.
func (w *workload) replace(r *rand.Rand) {
	for _, m := range slices.Clone(w.members) {
		if !m.profile.churn || r.IntN(2) == 0 {
			continue
		}
		w.members = slices.DeleteFunc(w.members, func(o *member) bool { return o == m })
		first := r.IntN(2) == 0
		if first {
			w.open(m.profile)
		}
		w.waits = append(w.waits, w.async(m.close))
		if !first {
			w.open(m.profile)
		}
	}
}

// live makes the broker the one that is used, by a process that lives.
func (w *workload) live(b Broker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broker = b
	w.process, w.kill = context.WithCancel(w.ctx)
}

// running returns the broker and its process, once it lives.
func (w *workload) running() (Broker, context.Context) {
	for {
		w.mu.Lock()
		b, process := w.broker, w.process
		w.mu.Unlock()
		if process.Err() == nil {
			return b, process
		}
		w.pause(w.AckWait / 100)
	}
}

// join opens the members of a profile.
func (w *workload) join(p *profile) {
	for range p.members {
		w.open(p)
	}
}

// open opens one member.
func (w *workload) open(p *profile) {
	b, process := w.running()
	m := &member{workload: w, profile: p, process: process, name: "m" + w.name()[len(w.id):], sub: p.sub}
	if m.sub.Name == "" {
		m.sub.Name = w.names[p.name]
	}
	if m.sub.AckWait = w.AckWait; p.roomy {
		m.sub.AckWait = w.roomy()
	}
	ctx, cancel := context.WithTimeout(process, w.prompt())
	defer cancel()
	o := w.rec.begin(ctx, op{kind: opSubscribe, who: m.name, sub: m.sub})
	src, err := b.Subscribe(ctx, m.sub, nil)
	w.rec.end(o, err)
	if o.class == "conflict" || o.class == "not found" {
		return // for a judge to find, who knows what was asked for before
	}
	w.ok(err, "Subscribe(%+v)", m.sub)
	m.src = src
	m.start()
	w.members = append(w.members, m)
}

// restart kills the process: nobody settles or closes anything. What was
// published just before is nobody's then. Members come back afterwards.
func (w *workload) restart() {
	o := w.rec.begin(context.Background(), op{kind: opRestart})
	old, _ := w.running()
	w.kill()
	members := w.members
	w.members = nil
	for _, m := range members {
		m.wait()
	}
	last := w.publisher("eve")
	for _, typ := range workloadTypes {
		ev := last.event()
		ev.SetType(typ)
		ctx, cancel := context.WithTimeout(w.ctx, w.prompt())
		last.try(ctx, w.ctx, old, []event.Event{ev})
		cancel()
	}
	b := w.restarted(old)
	w.rec.end(o, nil)
	w.live(b)
	for _, m := range members {
		w.open(m.profile)
	}
}

// settle waits until everything is settled, or should be.
func (w *workload) settle() {
	deadline := time.Now().Add(w.rec.terms.bound)
	for poll := w.AckWait / 20; time.Now().Before(deadline) && w.rec.size() < enough && !w.rec.history().settled(); poll = min(2*poll, w.AckWait) {
		w.pause(poll)
	}
}

// settled reports whether each subscription is done with all that it wants.
func (h *history) settled() bool {
	return !slices.ContainsFunc(h.courses, func(c *course) bool { return len(h.unfinished(c)) > 0 || len(h.unread(c)) > 0 })
}

// afterwards publishes into a broker that has nothing to do, and some events
// again that are duplicates no more.
func (w *workload) afterwards() {
	p := w.publisher("fay")
	p.publish(publishSingle)
	if !w.Bubble && w.Duplicates > 10*w.AckWait {
		return // too long to wait for
	}
	h := w.rec.history()
	last := make(map[string]time.Duration)
	for _, o := range h.published {
		last[o.id] = max(last[o.id], o.ret.at)
	}
	// Those that were published last the longest ago.
	old := slices.SortedFunc(maps.Keys(last), func(a, b string) int { return cmp.Or(cmp.Compare(last[a], last[b]), cmp.Compare(a, b)) })
	old = old[:3]
	for again := h.terms.opensAt(last[old[2]]); time.Since(w.rec.began) < again; {
		if w.rec.size() >= enough {
			return
		}
		w.pause(min(w.AckWait, again-time.Since(w.rec.began)))
	}
	for _, id := range old {
		source, id, _ := strings.Cut(id, " ")
		ev := p.event()
		v1(&ev).ID = id
		ev.SetSource(source)
		b, process := w.running()
		ctx, cancel := context.WithTimeout(process, w.prompt())
		p.call(ctx, process, b, []event.Event{ev})
		cancel()
	}
}

// shutDown ends half of the members, and lets the broker's Close end the rest.
func (w *workload) shutDown() {
	for i, m := range w.members {
		if i%2 == 0 {
			w.waits = append(w.waits, w.async(m.stop))
		}
	}
	for _, wait := range w.waits {
		wait()
	}
	b, _ := w.running()
	for range 2 { // the second changes nothing
		o := w.rec.begin(context.Background(), op{kind: opClose, who: "broker"})
		w.rec.end(o, b.Close())
	}
	for i, m := range w.members {
		if i%2 == 1 {
			m.close()
		}
	}
	w.kill()
}
