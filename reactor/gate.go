package reactor

import (
	"context"
	"sync"
	"sync/atomic"
)

// A gate is what a Run receives through: while it is closed, nothing is. It has
// a reason for each that keeps it closed.
type gate struct {
	state atomic.Pointer[gateState]

	mu sync.Mutex
	// Below: under mu.
	reasons map[any]struct{}
	parent  context.Context // of receiving; nil: nobody does
}

// A gateState is a gate between two changes.
type gateState struct {
	open    context.Context // ends when the gate closes; nil: it is closed
	end     context.CancelFunc
	changed chan struct{} // closed when a closed gate opens
}

func newGate() *gate {
	g := &gate{reasons: make(map[any]struct{})}
	g.renew()
	return g
}

// renew makes the state that the fields ask for. g.mu is held, or nobody else
// has g.
func (g *gate) renew() {
	old := g.state.Load()
	s := &gateState{}
	switch {
	case len(g.reasons) > 0 || g.parent == nil:
		s.changed = make(chan struct{})
	default:
		s.open, s.end = context.WithCancel(g.parent)
	}
	g.state.Store(s)
	if old == nil {
		return
	}
	if old.end != nil {
		old.end()
	} else {
		close(old.changed)
	}
}

// begin opens the gate for one who receives until a context ends, unless there
// are reasons against it.
func (g *gate) begin(receiving context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parent = receiving
	g.renew()
}

// end closes the gate for who received through it.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parent = nil
	g.renew()
}

// shut closes the gate for a reason.
func (g *gate) shut(reason any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.reasons)
	g.reasons[reason] = struct{}{}
	if before == 0 {
		g.renew()
	}
}

// reopen takes a reason away.
func (g *gate) reopen(reason any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.reasons)
	delete(g.reasons, reason)
	if before == 1 && len(g.reasons) == 0 {
		g.renew()
	}
}

func (g *gate) closed() bool { return g.state.Load().open == nil }

// wait waits until the gate is open, and returns a context that ends when it
// closes.
func (g *gate) wait(ctx context.Context) (open context.Context, err error) {
	for {
		s := g.state.Load()
		if s.open != nil {
			return s.open, nil
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
