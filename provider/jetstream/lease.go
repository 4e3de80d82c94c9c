package jetstream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/reactor"
)

// The server's AckWait runs from when it sends a message, ours from when
// Receive returns it [ACK-2]. So what a member keeps is kept alive: its lease
// is the last time at which we know that the server's AckWait began, or began
// later, and while that is no more than Slack ago the message can be handed out
// with our full AckWait before it. The server's is longer by Slack.

// serverWait is how long the server waits for a message, from its lease.
func (m *member) serverWait() time.Duration { return m.settings().AckWait + Slack }

// A member sends itself a message now and then, and remembers when it sent the
// last that came. What comes after that was sent after that time: the one thing
// that is known of when the server sent it, should the network have held it
// back. It comes by the inbox that events come by, so that it is in their order.

// echo sends the member a message of its own.
func (m *member) echo(now time.Time) {
	m.mu.Lock()
	m.token++
	token := m.token
	m.echoes[token] = now
	m.mu.Unlock()
	if err := m.broker.nc.PublishMsg(&nats.Msg{Subject: m.inbox + "e." + formatToken(token)}); err != nil {
		m.mu.Lock()
		delete(m.echoes, token)
		m.mu.Unlock()
	}
}

// hear takes an echo.
func (m *member) hear(rest string) {
	token, ok := parseToken(rest)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if sent, ok := m.echoes[token]; ok && sent.After(m.heard) {
		m.heard = sent
	}
	for t := range m.echoes {
		if t <= token { // those before it are lost
			delete(m.echoes, t)
		}
	}
}

// held reports whether the server still counts a message as the member's.
func (m *member) held(p *message) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(p.lease) < m.serverWait()
}

// due returns the messages to ask more time for, and drops those whose time is
// over: the server delivers them again, to somebody. m.mu is held.
func (m *member) due(now time.Time) (due []*message) {
	for p := range m.kept {
		age := now.Sub(p.lease)
		switch {
		case age >= m.serverWait():
			m.drop(p)
			m.ready = remove(m.ready, p)
		case age > Slack/2 && (p.probed.IsZero() || now.Sub(p.probed) > Slack/2):
			p.probed = now
			due = append(due, p)
		}
	}
	for token, p := range m.asked {
		if p.handled {
			delete(m.asked, token)
		}
	}
	for token, q := range m.probes { // the answer may be lost
		if q.message.handled || now.Sub(q.began) >= m.serverWait() {
			delete(m.probes, token)
		}
	}
	return due
}

// forgetLost drops the deliveries that nobody settled in time. m.mu is held.
func (m *member) forgetLost(now time.Time) {
	for h := range m.out {
		if !h.busy && !now.Before(h.deadline) {
			h.gone = true
			delete(m.out, h)
		}
	}
}

func remove(list []*message, p *message) []*message {
	for i, q := range list {
		if q == p {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// probe asks the server to start the messages' time anew. Its answers come to
// message.
func (m *member) probe(due []*message) {
	for _, p := range due {
		m.mu.Lock()
		m.token++
		token := m.token
		m.probes[token] = probe{p, time.Now()}
		m.mu.Unlock()
		if err := m.broker.nc.PublishMsg(&nats.Msg{Subject: p.Msg.Reply, Reply: m.inbox + "k." + formatToken(token), Data: ackProgress}); err != nil {
			m.mu.Lock()
			delete(m.probes, token)
			m.mu.Unlock()
		}
	}
}

// A probe is a request for more time that is under way.
type probe struct {
	message *message
	began   time.Time
}

// probed takes the server's answer to a probe.
func (m *member) probed(rest string) {
	token, ok := parseToken(rest)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	q, ok := m.probes[token]
	if !ok {
		return
	}
	delete(m.probes, token)
	p := q.message
	// An answer that took longer than the lease lasted proves nothing: the
	// message may have been somebody else's when the server saw the request.
	if time.Since(p.lease) < m.serverWait() && q.began.After(p.lease) {
		p.lease, p.probed = q.began, time.Time{}
	}
}

// renew starts a message's time anew, before it is handed out. It returns an
// error when ctx ends first; without one the caller looks again: the message
// may be lost.
func (m *member) renew(ctx context.Context, p *message) error {
	m.mu.Lock()
	until := p.lease.Add(m.serverWait())
	m.mu.Unlock()
	leased, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	began, err := m.extend(leased, p, &p.handled)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		p.lease = began
	case ctx.Err() != nil:
		return ctx.Err()
	case !time.Now().Before(until):
		m.drop(p)
	}
	return nil
}

// extend asks the server to start a message's time anew, waits for the answer,
// and returns when it asked. Once lost is true, which is under m.mu, it asks no
// more: ErrLost.
func (m *member) extend(ctx context.Context, p *message, lost *bool) (began time.Time, err error) {
	for {
		m.mu.Lock()
		gone := *lost
		m.mu.Unlock()
		if gone {
			return time.Time{}, reactor.ErrLost
		}
		began = time.Now()
		if _, err = m.broker.nc.RequestWithContext(ctx, p.Msg.Reply, ackProgress); err == nil || ctx.Err() != nil {
			return began, err
		}
		// Nobody there, or not connected, for now.
		select {
		case <-ctx.Done():
			return began, err
		case <-time.After(pullBackoff):
		}
	}
}
