package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// running is a reactor.Run in a goroutine of its own.
type running struct {
	env    *env
	cancel context.CancelFunc
	ended  chan struct{}
	// Below: after ended.
	err      error
	panicked any
}

func (e *env) start(src messaging.Source, h messaging.Handler, opts *messaging.Options) *running {
	ctx, cancel := context.WithCancel(e.ctx)
	r := &running{env: e, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer cancel()
		defer func() { r.panicked = recover() }()
		r.err = reactor.Run(ctx, src, h, opts)
	}()
	return r
}

// wait ends the check unless Run returns within d.
func (r *running) wait(d time.Duration) error {
	r.env.begin("waiting for Run to return")
	select {
	case <-r.ended:
	case <-time.After(d):
		r.env.failf("Run has not returned %v later", d)
	}
	if r.panicked != nil {
		r.env.failf("Run panicked: %v", r.panicked)
	}
	return r.err
}

// stop ends Run's context and expects it to return nil at once.
func (r *running) stop() {
	r.cancel()
	r.env.ok(r.wait(r.env.prompt()), "Run whose context ended")
}

// A call is one call of a handler.
type call struct {
	id      string
	attempt int
	at      time.Time
}

// calls keeps the calls of a handler.
type calls struct {
	mu   sync.Mutex
	list []call
}

// add notes a call and returns how many there were of that event before it.
func (c *calls) add(ctx context.Context, ev event.Event) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, other := range c.list {
		if other.id == ev.ID() {
			n++
		}
	}
	c.list = append(c.list, call{ev.ID(), reactor.InfoFrom(ctx).Attempt, time.Now()})
	return n
}

func (c *calls) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list)
}

func (c *calls) of(id string) []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []call
	for _, call := range c.list {
		if call.id == id {
			out = append(out, call)
		}
	}
	return out
}

// between ends the check unless the n-th call of the event (from 0) came that
// long after the one before it, and has the attempt n+1.
func (e *env) between(c *calls, id string, n int, atLeast, atMost time.Duration) {
	list := c.of(id)
	if len(list) <= n {
		e.failf("the handler was called %d times with event %s, want %d", len(list), id, n+1)
	}
	gap := list[n].at.Sub(list[n-1].at)
	if gap < atLeast || gap > atMost {
		e.failf("attempt %d of event %s began %v after the one before it, want %v to %v", list[n].attempt, id, gap, atLeast, atMost)
	}
	if list[n].attempt != n+1 {
		e.failf("call %d with event %s was attempt %d", n+1, id, list[n].attempt)
	}
}

// handler notes its call, and is content.
func (c *calls) handler(ctx context.Context, ev event.Event) error {
	c.add(ctx, ev)
	return nil
}

// slow returns a handler that takes so long, or until its context ends, and then
// tells why that has.
func (c *calls) slow(takes time.Duration) (h messaging.Handler, causes <-chan error) {
	out := make(chan error, 10)
	return func(ctx context.Context, ev event.Event) error {
		c.add(ctx, ev)
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
		out <- context.Cause(ctx)
		return nil
	}, out
}
