package jetstream

import (
	"context"

	"github.com/catchment-events/catchment/messaging"
)

// A gap keeps watch for events that the bounds of the log took away before the
// subscription received them [RET-3]. Of first deliveries, those that follow one
// another in the consumer's numbers do so in the log's, unless something is
// missing there.
//
// With Types something always is. Then a loss is reported, without a number, if
// the log's bounds took away what is missing while the subscription was behind,
// which is the most that can be known: they may have been events that it does
// not select.
type gap struct {
	sequence    uint64 // of the last first delivery, in the log
	delivery    uint64 // the same, among the consumer's deliveries
	redelivered uint64 // to us, since

	behind   bool   // there may be events that the server has not sent
	from, to uint64 // missing in the log while behind, and not looked into
}

// watch notes a message that came, and returns how many events are missing
// before it; what other members were delivered meanwhile does not count. m.mu is
// held.
func (m *member) watch(p *message) (lost uint64) {
	g := &m.gap
	if !m.broker.bounded || m.id.DeadLettersOf != "" || p.delivery <= g.delivery {
		return 0
	}
	if p.delivered > 1 {
		g.redelivered++
		return 0
	}
	others := p.delivery - g.delivery - 1 - min(g.redelivered, p.delivery-g.delivery-1)
	missing := max(p.sequence, g.sequence+1) - g.sequence - 1
	if missing > others {
		lost = missing - others
		if len(m.settings().Types) > 0 {
			lost = 0
			if g.behind {
				if g.to == 0 { // one before it, not looked into yet, begins earlier
					g.from = g.sequence + 1
				}
				g.to = p.sequence
				m.check = true
			}
		}
	}
	g.sequence, g.delivery, g.redelivered = p.sequence, p.delivery, 0
	return lost
}

// discarded reports events that were lost; their number, if it is known.
func (m *member) discarded(count uint64) {
	m.tell(&messaging.DiscardedError{Subscription: m.id.Name, Count: count})
}

// lookForGap asks whether what is missing was taken away by the log's bounds:
// then it may have been ours, and how many is not known.
func (m *member) lookForGap(ctx context.Context) {
	m.mu.Lock()
	from, to := m.gap.from, m.gap.to
	m.gap.from, m.gap.to = 0, 0
	m.mu.Unlock()
	if to == 0 {
		return
	}
	info, err := m.broker.stream.Info(ctx)
	if err == nil && info.State.FirstSeq > from {
		m.discarded(0)
	}
}
