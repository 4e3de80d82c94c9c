package conformance

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A member is an open source of a workload, with the goroutines that handle
// what it receives.
type member struct {
	*workload
	profile *profile
	name    string
	sub     messaging.Subscription
	src     messaging.Source
	process context.Context // ends when the member's process dies
	ctx     context.Context // of its Receives
	cancel  context.CancelFunc
	wait    func() // for its hands
	gone    chan struct{}
}

// start starts the member's hands.
func (m *member) start() {
	m.ctx, m.cancel = context.WithCancel(m.process)
	m.gone = make(chan struct{})
	var waits []func()
	for i := range m.profile.hands {
		waits = append(waits, m.async(func() { m.work(draw(m.seed, m.name, i)) }))
	}
	m.wait = m.async(func() {
		defer close(m.gone)
		for _, wait := range waits {
			wait()
		}
	})
}

// work receives and handles until the source or the context ends. Now and then
// a Receive has less time.
func (m *member) work(r *rand.Rand) {
	for m.ctx.Err() == nil {
		ctx, cancel := m.ctx, context.CancelFunc(func() {})
		if r.IntN(10) == 0 {
			ctx, cancel = context.WithTimeout(m.ctx, m.AckWait/4)
		}
		o := m.rec.begin(ctx, op{kind: opReceive, who: m.name, sub: m.sub})
		d, err := m.src.Receive(ctx)
		cancel()
		switch {
		case err == nil && d == nil:
			m.failf("Receive returned neither a delivery nor an error")
		case err != nil && m.process.Err() != nil:
			m.rec.died(o)
			return
		}
		times := m.rec.received(o, d, err)
		switch {
		case err == nil:
			m.handle(o, d, times)
		case o.class != "context":
			return
		}
	}
}

// handle does with a delivery what its profile decides, unless the process dies
// meanwhile. When faults have stopped it acks.
func (m *member) handle(o *op, d *messaging.Delivery, times int) {
	s := m.profile.step(m.seed, o.event, times, m.AckWait)
	if m.calm.Load() {
		s = step{how: opAck, hold: s.hold}
	}
	if s.scribble {
		m.rec.scribble(m.name, o.event, d.Value, '!')
	}
	switch {
	case s.stall:
		s.hold = o.deadline - time.Since(m.rec.began) + m.AckWait/20
	case s.extend:
		if !m.sleep(m.AckWait / 2) {
			return
		}
		m.extend(o, d)
		s.hold = m.AckWait * 3 / 4
	}
	if m.sleep(s.hold) {
		m.settle(o, d, s)
	}
}

// sleep lets time pass, and reports whether the process lives.
func (m *member) sleep(d time.Duration) bool {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-m.process.Done():
		}
	}
	return m.process.Err() == nil
}

var results = map[kind]reactor.Result{opAck: reactor.Acked, opRetry: reactor.Retried, opReject: reactor.Rejected, opRelease: reactor.Released}

func (m *member) settle(o *op, d *messaging.Delivery, s step) {
	ctx, cancel := context.WithTimeout(m.process, m.prompt())
	defer cancel()
	one := m.rec.begin(ctx, op{kind: s.how, who: m.name, sub: m.sub, event: o.event, delivery: o.delivery, after: s.after, reason: s.reason})
	err := d.Settle(ctx, reactor.Outcome{Result: results[s.how], After: s.after, Reason: s.reason})
	m.rec.end(one, err)
}

func (m *member) extend(o *op, d *messaging.Delivery) {
	ctx, cancel := context.WithTimeout(m.process, m.prompt())
	defer cancel()
	one := m.rec.begin(ctx, op{kind: opExtend, who: m.name, sub: m.sub, event: o.event, delivery: o.delivery})
	deadline, err := d.Extend(ctx)
	m.rec.extended(one, deadline, err)
}

// close closes the source while its hands receive and handle, and waits for
// them. They have their context ended only if Close does not end them.
func (m *member) close() {
	for range 2 { // the second changes nothing
		o := m.rec.begin(context.Background(), op{kind: opClose, who: m.name, sub: m.sub})
		err := m.src.Close()
		if m.process.Err() != nil {
			m.rec.died(o)
			break
		}
		m.rec.end(o, err)
	}
	select {
	case <-m.gone:
	case <-time.After(2 * m.prompt()):
	}
	m.cancel()
	m.wait()
}

// stop ends the contexts of the member's Receives, and then closes it.
func (m *member) stop() {
	m.rec.cancelled(m.name)
	m.cancel()
	select {
	case <-m.gone:
	case <-time.After(2 * m.prompt()):
	}
	m.close()
}
