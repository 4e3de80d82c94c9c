package ledger

import (
	"sync"
	"sync/atomic"
)

// A gate lets calls in until it is closed, and whoever closes it waits for
// those that are inside. Its zero value is closed: make one with newGate.
type gate struct {
	inside atomic.Int64 // how many are; shut less, once it is closed
	once   sync.Once
	empty  chan struct{}
}

const shut = 1 << 62

func newGate() *gate { return &gate{empty: make(chan struct{})} }

// enter reports whether the gate is open; then leave must follow.
func (g *gate) enter() bool {
	if g.inside.Add(1) > 0 {
		return true
	}
	g.leave(true)
	return false
}

// leave undoes an enter that returned entered.
func (g *gate) leave(entered bool) {
	if entered && g.inside.Add(-1) == -shut {
		g.once.Do(func() { close(g.empty) })
	}
}

// closed reports whether the gate is.
func (g *gate) closed() bool { return g.inside.Load() < 0 }

// close shuts the gate, and returns a channel that is closed when nobody is
// inside. It is called once.
func (g *gate) close() (empty <-chan struct{}) {
	g.inside.Add(1)
	g.inside.Add(-shut)
	g.leave(true)
	return g.empty
}
