package reactor

import (
	"context"
	"sync"
)

// A control is what others than its caller may do with a Run: middleware, and
// the Reactor that it belongs to.
type control struct {
	gate    *gate
	onDrain func() // is called when Run stops receiving; nil: nobody cares

	mu sync.Mutex
	// Below: under mu.
	stopping context.Context // ends when Run stops receiving; nil: none runs
	run      runner
}

// A runner is a run, of whatever type.
type runner interface {
	quiet() <-chan struct{}
	cutOff()
	giveBack() <-chan struct{}
}

func newControl() *control { return &control{gate: newGate()} }

func (c *control) begin(receiving context.Context, r runner) {
	c.mu.Lock()
	c.stopping, c.run = receiving, r
	c.mu.Unlock()
	c.gate.begin(receiving)
}

func (c *control) end() {
	c.gate.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping, c.run = nil, nil
}

// drains tells that Run has stopped receiving.
func (c *control) drains() {
	if c.onDrain != nil {
		c.onDrain()
	}
}

// abort cuts off the handlers. A Run that has yet to begin was told to stop, and
// calls none.
func (c *control) abort() {
	if r := c.running(); r != nil {
		r.cutOff()
	}
}

// running returns the Run, nil if there is none.
func (c *control) running() runner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// stop returns a context that ends when Run stops receiving.
func (c *control) stop() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping == nil { // the handler has outlived its Run
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return ended
	}
	return c.stopping
}

// controlFrom returns the control of the Run whose handler has that context, or
// nil.
func controlFrom(ctx context.Context) *control {
	c, _ := ctx.Value(controlKey{}).(*control)
	return c
}
