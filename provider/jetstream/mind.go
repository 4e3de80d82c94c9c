package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/messaging"
)

// mind looks after time and the connection.
func (m *member) mind() {
	nc := m.broker.nc
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if nc.IsClosed() { // perhaps before we listened
			m.end(fmt.Errorf("jetstream: subscription %q: %w", m.id.Name, nats.ErrConnectionClosed))
			return
		}
		select {
		case <-m.ended:
			return
		case <-status:
			m.mu.Lock()
			m.pulls.reset(time.Now()) // the server has forgotten them
			// Who was away was told of no change, and first looks for one.
			m.doubt()
			m.mu.Unlock()
		case <-m.nudge:
		case <-timer.C:
		}
		timer.Reset(m.look(time.Now()))
	}
}

// Of mind's looks: while something is kept, and while nothing is.
const (
	lookOften = Slack / 4
	lookIdle  = Slack / 2
)

// look does what the time has come for, and returns when to look again.
func (m *member) look(now time.Time) time.Duration {
	m.mu.Lock()
	if m.pulls.silent(now) {
		m.pulls.reset(now)
		m.check = true
	}
	check := m.check && !m.looking && now.Sub(m.checked) >= time.Second
	if check {
		m.check, m.checked, m.looking = false, now, true
	}
	m.forgetLost(now)
	probes := m.due(now)
	surplus := m.surplus(now)
	asks := make(map[uint64]*message, len(m.asked))
	for token, p := range m.asked {
		asks[token] = p
	}
	pull := m.want(now)
	idle := len(m.kept) == 0 && !m.check && !now.Before(m.pulls.after)
	m.mu.Unlock()

	if check {
		m.work.Go(m.refresh)
	}
	m.echo(now)
	m.probe(probes)
	for token, p := range asks {
		m.askCredit(token, p) // again: the answer may be lost
	}
	if len(surplus) > 0 {
		m.work.Go(func() { m.giveUp(surplus) })
	}
	m.pull(pull)
	if idle {
		return lookIdle
	}
	return lookOften
}

// changed is told that an Admin has done something to the subscription.
func (m *member) changed(*nats.Msg) {
	m.mu.Lock()
	m.doubt()
	m.mu.Unlock()
	signal(m.nudge)
}

// doubt makes the member look at once what has become of the subscription, and
// pull and hand out nothing before. m.mu is held.
func (m *member) doubt() {
	m.check, m.checked, m.stale = true, time.Time{}, true
	m.doubts++
}

// refresh looks what has become of the subscription: the server does not tell
// who was away. The member goes on with other settings, or at the place where
// the subscription was moved to, or ends because it was deleted.
func (m *member) refresh() {
	ctx, cancel := context.WithTimeout(m.ctx, 5*time.Second)
	defer cancel()
	defer signal(m.nudge)
	m.mu.Lock()
	doubts := m.doubts
	m.mu.Unlock()
	m.lookForGap(ctx)
	i, err := m.broker.incarnation(ctx, m.id)
	if errors.Is(err, messaging.ErrNotFound) {
		m.end(err)
	} else if err == nil && i.note != m.now().note && !i.moved {
		m.end(fmt.Errorf("%w: %q was deleted, and there is another by that name", messaging.ErrNotFound, m.id.Name))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looking = false
	switch {
	case m.err != nil:
	case err != nil:
		m.check = true // again, later
	default:
		if i.note == m.now().note {
			m.current.Store(i)
		} else { // what the member holds of the old one is nobody's any more, and settles nothing
			m.lose()
			m.begin(i)
			m.pulls.reset(time.Now())
		}
		m.stale = m.doubts != doubts // there was another while we looked
		signal(m.available)
	}
}

// lose drops all that the member holds, received or not. m.mu is held.
func (m *member) lose() {
	for p := range m.kept {
		m.drop(p)
	}
	for h := range m.out {
		h.gone = true
		delete(m.out, h)
	}
	m.ready = nil
	clear(m.asked)
	clear(m.probes)
}

// end makes Receive return err, unless it has ended before. Of a subscription
// that is gone, nothing can be settled any more.
func (m *member) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	m.err = err
	if errors.Is(err, messaging.ErrNotFound) {
		m.lose()
	}
	close(m.ended)
}
