package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// Close implements [messaging.Source].
func (m *member) Close() error {
	m.end(messaging.ErrClosed)
	return m.close()
}

// Bounds of what Close waits for: the server's confirmations, and the end of
// the last pull.
const (
	shutTimeout   = 5 * time.Second
	pullsEndAfter = 2*pullExpiry + 500*time.Millisecond
)

// shut hands back what the member holds and ends all that it started.
func (m *member) shut() error {
	m.mu.Lock()
	var back []*message
	m.closing = true
	for p := range m.kept {
		if !p.dying { // whoever stores its letter goes on
			m.drop(p)
			back = append(back, p)
		}
	}
	m.forgetLost(time.Now()) // these have failed: the server's AckWait says so
	for h := range m.out {
		if !h.busy { // a settle under way goes on
			h.gone = true
			delete(m.out, h)
			back = append(back, h.message)
		}
	}
	m.ready = nil
	m.err = messaging.ErrClosed
	m.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), shutTimeout)
	defer cancel()
	m.cancel()
	m.broker.mu.Lock()
	delete(m.broker.members, m)
	m.broker.mu.Unlock()

	nc := m.broker.nc
	// What cannot be handed back is left to the server's AckWait: a late Nak
	// could take an event from whoever has it by then.
	if nc.IsConnected() {
		_ = m.handBack(ctx, back)
		m.endPulls(ctx)
		if m.settings().Expires > 0 {
			m.wasHere()
		}
	}
	_ = m.changes.Unsubscribe()
	_ = m.incoming.Unsubscribe()
	m.work.Wait()
	if err := nc.FlushWithContext(ctx); err != nil && nc.IsConnected() {
		return fmt.Errorf("jetstream: subscription %q: close: %w", m.id.Name, err)
	}
	return nil
}

// endPulls waits until the server has answered every pull, and hands back what
// still comes. A pull cannot be taken back, and if nobody listened the server
// would count a delivery that nobody has seen; so pulls are short.
func (m *member) endPulls(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pullsEndAfter)
	defer cancel()
	for {
		m.mu.Lock()
		late := m.late
		m.late = nil
		open := m.pulls.outstanding > 0
		m.mu.Unlock()
		_ = m.handBack(ctx, late)
		if !open || ctx.Err() != nil {
			return
		}
		select {
		case <-m.nudge:
		case <-time.After(10 * time.Millisecond): // mind may have taken the word
		case <-ctx.Done():
		}
	}
}
