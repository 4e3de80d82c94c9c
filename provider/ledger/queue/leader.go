package queue

import (
	"slices"
	"time"
)

// A waiter is an Append that waits for room. It stays where it is among the
// waiters until it found some or gave up.
type waiter struct{ wake chan struct{} } // room for one

// handOver ends the leadership of a caller whose group is stored. When there is
// more, a goroutine leads on.
func (p *Producer) handOver() {
	p.mu.Lock()
	more := len(p.queue) > 0
	p.leading = more
	p.mu.Unlock()
	if more {
		go p.run()
	} else {
		p.wg.Done()
	}
}

// run stores what is queued until nothing is. Only who leads may.
func (p *Producer) run() {
	defer p.wg.Done()
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.leading = false
			p.mu.Unlock()
			return
		}
		g := p.queue[0]
		p.mu.Unlock()
		p.store(g)
	}
}

// store commits the first group in the queue. Only who leads may.
func (p *Producer) store(g *pending) {
	p.mu.Lock()
	if p.opts.Linger > 0 && !g.full {
		p.linger(g)
	}
	g.full = true
	if p.window != nil {
		g.ids = g.lot.ids
		g.forget = p.window.expired()
	}
	p.hint = max(g.bytes, p.hint-p.hint/8)
	p.mu.Unlock()

	g.err = p.l.commit(&g.group)

	p.mu.Lock()
	p.queue[0] = nil
	p.queue = p.queue[1:]
	p.entries -= g.entries
	p.bytes -= g.bytes
	if p.window != nil {
		p.window.settle(g)
	}
	w, done, calls := p.head(), g.done, g.calls
	p.mu.Unlock()
	w.signal()
	if done != nil {
		close(done)
	}
	for _, call := range calls {
		call(g.err)
	}
}

// linger waits until the group is full or has waited long enough. Under mu,
// which it gives up meanwhile.
func (p *Producer) linger(g *pending) {
	t := time.AfterFunc(p.opts.Linger, func() {
		p.mu.Lock()
		g.late = true
		p.mu.Unlock()
		p.ripe.Broadcast()
	})
	defer t.Stop()
	for !g.full && !g.late && !p.closed {
		p.ripe.Wait()
	}
}

// fill says that nothing more may join a group. Under mu.
func (p *Producer) fill(g *pending) {
	if !g.full {
		g.full = true
		p.ripe.Broadcast()
	}
}

// head returns the first who waits for room. Under mu.
func (p *Producer) head() *waiter {
	if len(p.waiters) == 0 {
		return nil
	}
	return p.waiters[0]
}

// leave takes one, if not nil, out of those who wait for room, and returns the
// one to be woken next. Under mu.
func (p *Producer) leave(w *waiter) *waiter {
	if w == nil {
		return nil
	}
	p.waiters = slices.DeleteFunc(p.waiters, func(o *waiter) bool { return o == w })
	return p.head()
}

func (w *waiter) signal() {
	if w == nil {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
