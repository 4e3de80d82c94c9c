package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// tagName is the extension that tells publications apart which have source and id
// in common.
const tagName = "publication"

// A recorder writes down a history while it happens. Events are read and
// written by its methods only, under its mutex: a broker that hands one event
// to two members is to be found by a judge and not by the race detector.
type recorder struct {
	seed  uint64
	terms terms
	began time.Time
	last  time.Time // when the contexts of all end

	mu sync.Mutex
	// Below: under mu.
	moments, deliveries int
	ops                 []*op
	tags                map[string]*op // what was published under it first
	count               map[string]int // of deliveries, by subscription and event
}

func newRecorder(ctx context.Context, seed uint64, t terms) *recorder {
	last, _ := ctx.Deadline()
	return &recorder{seed: seed, terms: t, began: time.Now(), last: last, tags: make(map[string]*op), count: make(map[string]int)}
}

// now is the next moment; mu is held.
func (r *recorder) now() moment {
	r.moments++
	return moment{time.Since(r.began), r.moments}
}

// begin notes that a call begins.
func (r *recorder) begin(ctx context.Context, o op) *op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(ctx, &o, r.now())
}

func (r *recorder) add(ctx context.Context, o *op, now moment) *op {
	o.call, o.ret, o.result = now, never, resultUnknown
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(r.last) {
		o.limit = max(deadline.Sub(r.began), now.at+1) // one that is past may not have ended it yet
	}
	if ctx.Err() != nil {
		o.limit = now.at
	}
	r.ops = append(r.ops, o)
	return o
}

// end notes that a call has returned.
func (r *recorder) end(o *op, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.ret = r.now()
	o.conclude(err)
}

// mark notes something that takes no time.
func (r *recorder) mark(k kind) { r.end(r.begin(context.Background(), op{kind: k}), nil) }

// conclude notes what a call came to. An error that says neither that nothing
// changed nor that something may have is taken for the latter, but for Publish,
// whose errors tell them apart.
func (o *op) conclude(err error) {
	o.class = classOf(err)
	if err != nil {
		o.text = err.Error()
	}
	switch {
	case err == nil:
		o.result = resultOK
	case o.class == "unknown":
		o.result = resultUnknown
	case o.class == "lost", o.class == "settled", o.kind == opPublish, o.kind == opSubscribe, o.kind == opReceive, o.kind == opClose:
		o.result = resultFailed
	}
}

// classOf names the error that err wraps.
func classOf(err error) string {
	for _, c := range []struct {
		err  error
		name string
	}{
		{messaging.ErrUnknown, "unknown"}, {messaging.ErrInvalid, "invalid"}, {messaging.ErrTooLarge, "invalid"},
		{messaging.ErrConflict, "conflict"}, {messaging.ErrLost, "lost"}, {reactor.ErrSettled, "settled"},
		{messaging.ErrClosed, "closed"}, {messaging.ErrNotFound, "not found"}, {context.Canceled, "context"}, {context.DeadlineExceeded, "context"},
	} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	if err != nil {
		return "other"
	}
	return ""
}

// cancelled notes that the context of a member's Receives has ended.
func (r *recorder) cancelled(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops {
		if o.kind == opReceive && o.who == who && o.ret == never && o.limit == 0 {
			o.limit = time.Since(r.began)
		}
	}
}

// died notes that a call's process has died: what came of it nobody can know.
func (r *recorder) died(o *op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.ret, o.result, o.text = r.now(), resultUnknown, "the process died"
}

// publishing notes that a call to Publish begins, of as many operations as
// there are events.
func (r *recorder) publishing(ctx context.Context, who string, batch int, events []event.Event) []*op {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*op, len(events))
	now := r.now()
	for i, ev := range events {
		tag, _ := ev.Extensions()[tagName].(string)
		out[i] = r.add(ctx, &op{
			kind: opPublish, who: who, event: tag, id: identity(ev), typ: ev.Type(), content: contentOf(ev), batch: batch, index: i,
		}, now)
		if r.tags[tag] == nil {
			r.tags[tag] = out[i]
		}
	}
	return out
}

// published notes what became of each event of a call, by its error.
func (r *recorder) published(ops []*op, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	batch, each := errors.AsType[*reactor.BatchError](err)
	for i, o := range ops {
		o.ret = now
		if each && len(batch.Errors) == len(ops) {
			o.conclude(batch.Errors[i])
		} else {
			o.conclude(err)
		}
	}
}

// received notes what a Receive returned, and how often its event was delivered
// to the subscription by now.
func (r *recorder) received(o *op, d *messaging.Delivery, err error) (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.ret = r.now()
	o.conclude(err)
	if err != nil {
		return 0
	}
	r.deliveries++
	o.delivery, o.attempt, o.sequence = r.deliveries, d.Info.Attempt, d.Info.Sequence
	o.deadline = o.ret.at + o.sub.AckWait
	if deadline := d.Deadline(); !deadline.IsZero() {
		o.deadline = deadline.Sub(r.began)
	}
	if letter, ok := messaging.DeadLetterFrom(d.Info); ok {
		o.letter = &letter
	}
	o.id, o.content = identity(d.Value), contentOf(d.Value)
	tag, _ := d.Value.Extensions()[tagName].(string)
	p := r.tags[tag]
	if p == nil {
		p = r.tagged(o.id)
	}
	o.event = "unpublished " + o.id
	if p != nil {
		o.event = p.event
		if maps.Equal(o.content, p.content) {
			o.content = p.content // in place of a copy for each delivery
		}
	}
	r.count[o.sub.Name+" "+o.event]++
	return r.count[o.sub.Name+" "+o.event]
}

// tagged returns a publication with that source and id, or nil: the broker has
// changed its tag. mu is held.
func (r *recorder) tagged(id string) *op {
	for _, o := range r.ops {
		if o.kind == opPublish && o.id == id {
			return o
		}
	}
	return nil
}

// extended notes what an Extend returned.
func (r *recorder) extended(o *op, deadline time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.ret, o.deadline = r.now(), deadline.Sub(r.began)
	o.conclude(err)
}

// scribble writes over all of an event that can be written to in place, as its
// owner may, and notes it.
func (r *recorder) scribble(who, tag string, ev event.Event, with byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	copy(ev.DataEncoded, bytes.Repeat([]byte{with}, len(ev.DataEncoded)))
	if c, ok := ev.Context.(*sdk.EventContextV1); ok && c.Extensions != nil {
		c.Extensions["note"] = string(with)
	}
	now := r.now()
	r.ops = append(r.ops, &op{kind: opWrite, who: who, event: tag, content: contentOf(ev), call: now, ret: now, result: resultOK})
}

// size is how many operations there are so far.
func (r *recorder) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops)
}

// history is what was recorded so far.
func (r *recorder) history() *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	ops := make([]*op, len(r.ops))
	for i, o := range r.ops {
		one := *o
		ops[i] = &one
	}
	return newHistory(r.seed, r.terms, ops)
}

func identity(ev event.Event) string { return ev.Source() + " " + ev.ID() }

// contentOf lists what an event is made of, extensions in the form in which
// they arrive [EVT-3].
func contentOf(ev event.Event) content {
	c := content{
		"id": ev.ID(), "source": ev.Source(), "specversion": ev.SpecVersion(), "type": ev.Type(), "subject": ev.Subject(),
		"datacontenttype": ev.DataContentType(), "dataschema": ev.DataSchema(), "time": fmt.Sprint(nanos(ev.Time())),
	}
	for name, v := range ev.Extensions() {
		if s, err := canonical(v); err == nil {
			c["extension "+name] = s
		} else {
			c["extension "+name] = fmt.Sprintf("%T %v", v, v)
		}
	}
	c["data"] = string(ev.Data())
	if n := len(ev.Data()); n > 100 {
		c["data"] = fmt.Sprintf("%d bytes, SHA-256 %x", n, sha256.Sum256(ev.Data()))
	}
	return c
}
