package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/catchment-events/catchment/event"
)

// A publisher publishes the events of a workload, one call after another.
type publisher struct {
	*workload
	name string
	rand *rand.Rand
	n    int           // events so far
	own  []event.Event // those that may be published again
}

func (w *workload) publisher(name string) *publisher {
	return &publisher{workload: w, name: name, rand: draw(w.seed, name)}
}

// A sort is one of calls to Publish.
type sort string

const (
	publishSingle    sort = "single"
	publishBatch     sort = "batch"
	publishLarge     sort = "large"     // of more than 64 KiB
	publishDuplicate sort = "duplicate" // of an event before it
	publishTwice     sort = "twice"     // the same event in one call
	publishNamesake  sort = "namesake"  // with the id of another, and another source
	publishSpoilt    sort = "spoilt"    // a batch of which one is not valid
	publishCancelled sort = "cancelled" // before it begins
	publishBrief     sort = "brief"     // cancelled soon after it has begun
)

// publisherCalls are what each publisher does, in an order that the seed decides.
var publisherCalls = []sort{
	publishSingle, publishSingle, publishSingle, publishSingle, publishSingle, publishSingle, publishBatch, publishBatch, publishBatch, publishBatch,
	publishLarge, publishDuplicate, publishDuplicate, publishTwice, publishNamesake, publishSpoilt, publishCancelled, publishBrief,
}

// run makes the publisher's calls, and takes about as long as it is told.
func (p *publisher) run(span time.Duration) {
	p.publish(publishSingle) // so that there is one to be a duplicate of
	for _, i := range p.rand.Perm(len(publisherCalls)) {
		p.pause(time.Duration(p.rand.Int64N(int64(2*span) / int64(len(publisherCalls)))))
		p.publish(publisherCalls[i])
	}
}

func (p *publisher) publish(s sort) {
	broker, process := p.running()
	ctx, cancel := context.WithTimeout(process, p.prompt())
	defer cancel()
	events := []event.Event{p.event()}
	switch s {
	case publishBatch, publishSpoilt:
		for range 1 + p.rand.IntN(4) {
			events = append(events, p.event())
		}
	case publishLarge:
		p.ok(events[0].SetData("application/octet-stream", []byte(strings.Repeat("70 kB\x00\xff", 10_000))), "set the data of an event")
	case publishDuplicate:
		events[0] = p.again(p.own[p.rand.IntN(len(p.own))])
	case publishTwice:
		events = append(events, p.again(events[0]), p.event())
	case publishNamesake:
		events[0] = p.again(p.own[p.rand.IntN(len(p.own))])
		events[0].SetSource(events[0].Source() + "/namesake")
	case publishCancelled:
		cancel()
	case publishBrief:
		ctx, cancel = context.WithTimeout(ctx, max(p.AckWait/10_000, 1))
		defer cancel()
	}
	if s == publishSpoilt {
		v1(&events[p.rand.IntN(len(events))]).Type = ""
	} else if s != publishCancelled && s != publishDuplicate {
		p.own = append(p.own, event.Clone(events[0]))
	}
	p.call(ctx, process, broker, events)
}

// call publishes, and again what may not be stored if it is not too late for
// that to be safe. Afterwards the events are the publisher's, to write to.
func (p *publisher) call(ctx, process context.Context, broker Broker, events []event.Event) {
	kept := make([]event.Event, len(events))
	for i := range events {
		kept[i] = event.Clone(events[i])
	}
	began := time.Now()
	ops := p.try(ctx, process, broker, events)
	if p.rand.IntN(3) == 0 {
		for i, ev := range events {
			p.rec.scribble(p.name, ops[i].event, ev, '?')
		}
	}
	var again []event.Event
	for i, o := range ops {
		if o.result == resultUnknown {
			again = append(again, kept[i])
		}
	}
	if len(again) == 0 || p.rand.IntN(4) == 0 {
		return
	}
	broker, process = p.running()
	if time.Since(began) < p.Duplicates/2 {
		ctx, cancel := context.WithTimeout(process, min(p.prompt(), p.Duplicates/4))
		defer cancel()
		p.try(ctx, process, broker, again)
	}
}

// try publishes once. Of a call that fails when its process has died, nobody
// learns more.
func (p *publisher) try(ctx, process context.Context, broker Broker, events []event.Event) []*op {
	ops := p.rec.publishing(ctx, p.name, int(p.batches.Add(1)), events)
	err := broker.Publish(ctx, events...)
	p.rec.published(ops, err)
	if err != nil && process.Err() != nil {
		for _, o := range ops {
			p.rec.died(o)
		}
	}
	return ops
}

// event returns a new event: what a codec could take for something else is in
// some of them.
func (p *publisher) event() event.Event {
	p.n++
	r := p.rand
	ev := p.eventOf("/histories/"+p.name, fmt.Sprintf("%s.%d", p.name, p.n), workloadTypes[r.IntN(len(workloadTypes))])
	ev.SetTime(time.Now().UTC().Add(time.Duration(r.IntN(1000))))
	data := [][]byte{[]byte(" two spaces "), []byte("\x00\xff\r\n%41\""), []byte(`{"a": 1}`), nil}[r.IntN(4)]
	if data != nil {
		p.ok(ev.SetData("application/octet-stream", data), "set the data of an event")
	}
	if r.IntN(2) == 0 {
		ev.SetSubject("ein Fäßchen 日本 100% %41")
		ev.SetExtension("status", true)
	}
	ev.SetExtension("note", []string{" a ", "%41", "ü", "note"}[r.IntN(4)])
	return p.tagged(ev)
}

// again returns an event with the source and id of another: a duplicate, which
// can be told from it.
func (p *publisher) again(ev event.Event) event.Event { return p.tagged(event.Clone(ev)) }

func (p *publisher) tagged(ev event.Event) event.Event {
	ev.SetExtension(tagName, fmt.Sprintf("%s.%d", p.name, p.tags.Add(1)))
	return ev
}
