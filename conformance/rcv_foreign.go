package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// foreign are messages in the log that are no events.
var foreign = []struct {
	what   string
	header map[string][]string
	body   string
}{
	{"nothing", nil, ""},
	{"a body without headers", nil, "hello"},
	{"headers of something else", map[string][]string{"X-Other": {"1"}}, "hello"},
	{"JSON that is no event", map[string][]string{"Content-Type": {"application/json"}}, `{"a":1}`},
	{"a structured event cut short", map[string][]string{"Content-Type": {"application/cloudevents+json"}}, `{"specversion":"1.0","id":`},
	{"a structured event without a type", map[string][]string{"Content-Type": {"application/cloudevents+json"}}, `{"specversion":"1.0","id":"1","source":"/"}`},
	{"another version", map[string][]string{"ce-specversion": {"7.0"}, "ce-id": {"1"}, "ce-source": {"/"}, "ce-type": {"rcv.foreign"}}, ""},
	{"no id", map[string][]string{"ce-specversion": {"1.0"}, "ce-source": {"/"}, "ce-type": {"rcv.foreign"}}, ""},
	{"invalid UTF-8", map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"%FF"}, "ce-source": {"/"}, "ce-type": {"rcv.foreign"}}, ""},
	{"a time that is none", map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/"}, "ce-type": {"rcv.foreign"}, "ce-time": {"yesterday"}}, ""},
	{"bytes", map[string][]string{"Content-Type": {"application/cloudevents+json"}}, "\x00\xff\xfe" + strings.Repeat("[", 10000)},
}

func rcv5(e *env) {
	b := e.open()
	var mu sync.Mutex
	reports := make(map[string][]error)
	sub, other := e.sub(), e.sub()
	subscribe := func(sub messaging.Subscription) messaging.Source {
		return e.subscribeReport(b, sub, func(_ context.Context, err error) {
			mu.Lock()
			defer mu.Unlock()
			reports[sub.Name] = append(reports[sub.Name], err)
		})
	}
	src := subscribe(sub)
	events := e.events(len(foreign)+1, "rcv.around")
	for i, f := range foreign {
		e.publish(b, events[i])
		e.begin("Inject of %s", f.what)
		e.injected(b, f.header, []byte(f.body))
	}
	e.publish(b, events[len(foreign)])
	e.accept(src, events...)
	late := subscribe(other)
	e.accept(late, events...)

	for _, name := range []string{sub.Name, other.Name} {
		n := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(reports[name])
		}
		e.await("the reports of messages that do not decode", func() bool { return n() >= len(foreign) })
	}
	// They were ended: nobody hears of them again.
	e.closing(src)
	src = subscribe(sub)
	e.fence(b, src, "rcv.around")
	mu.Lock()
	defer mu.Unlock()
	for name, errs := range reports {
		if len(errs) != len(foreign) {
			e.failf("%d reports of %d messages that do not decode: %q", len(errs), len(foreign), errs)
		}
		for i, f := range foreign {
			decode, ok := errors.AsType[*messaging.DecodeError](errs[i])
			switch {
			case !ok:
				e.failf("the report of %s is no DecodeError: %v", f.what, errs[i])
			case decode.Subscription != name:
				e.failf("the report of %s names the subscription %q, want %q", f.what, decode.Subscription, name)
			case string(decode.Body) != f.body:
				e.failf("the report of %s has the body %.50q, want %.50q", f.what, decode.Body, f.body)
			}
		}
	}
}

// A message that parses is delivered, whatever Publish would have said to it.
func rcv5Lenient(e *env) {
	b := e.open()
	src := e.subscribe(b, e.sub())
	before, after := e.event("rcv.before"), e.event("rcv.after")
	lenient := e.event("rcv.lenient")
	e.publish(b, before)
	header, body := e.encoded(lenient)
	if string(body) != string(lenient.Data()) {
		e.failf("event.NATS does not encode in binary mode")
	}
	e.injected(b, header, []byte("{ no JSON"))
	e.publish(b, after)
	e.accept(src, before)
	d := e.receive(src)
	if d.Value.ID() != lenient.ID() || string(d.Value.Data()) != "{ no JSON" || d.Value.DataContentType() != "application/json" {
		e.failf("a message that parses was not delivered as it stands, but as %v", d.Value)
	}
	e.ack(d)
	e.accept(src, after)
}

// What is no event can be read as it was stored, for each subscription that
// met it.
func rcv5Raw(e *env) {
	b, a := e.openAdmin()
	subs := []messaging.Subscription{e.sub(), e.sub()}
	marker := e.event("rcv.raw")
	for _, f := range foreign {
		e.injected(b, f.header, []byte(f.body))
	}
	e.publish(b, marker)
	idle := e.sub()
	idle.Start = messaging.StartNew()
	e.subscribe(b, idle)
	for _, sub := range subs {
		src := e.subscribeReport(b, sub, func(context.Context, error) {})
		e.accept(src, marker)
		if sub.Name == subs[0].Name {
			e.undecodable(a, sub.Name, len(foreign))
			e.closing(src)
		}
	}
	for _, sub := range subs {
		for range 2 {
			for i, bad := range e.undecodable(a, sub.Name, len(foreign)) {
				f := foreign[i]
				switch {
				case bad.Subscription != sub.Name:
					e.failf("%s is kept for the subscription %q, want %q", f.what, bad.Subscription, sub.Name)
				case string(bad.Body) != f.body:
					e.failf("%s is kept with the body %.50q, was injected with %.50q", f.what, bad.Body, f.body)
				case bad.Err == nil:
					e.failf("%s is kept, and nothing said to be wrong with it", f.what)
				}
				for name, values := range f.header {
					if !slices.Equal(bad.Header[name], values) {
						e.failf("%s is kept with %q in its header %s, was injected with %q", f.what, bad.Header[name], name, values)
					}
				}
				clear(bad.Header) // whoever asked may do with it what he wants
				clear(bad.Body)
			}
		}
		e.counts(a, sub, counted{}) // they are no events
	}
	e.undecodable(a, idle.Name, 0)
}

// encoded returns an event as another client would put it into the log.
func (e *env) encoded(ev event.Event) (header map[string][]string, body []byte) {
	header = make(map[string][]string)
	body, err := event.NATS.Encode(ev, header)
	e.ok(err, "Encode")
	return header, slices.Clone(body)
}
