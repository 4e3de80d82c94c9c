package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/reactor"
)

// A handed is a delivery of a message: what its receiver settles through. It
// implements [reactor.Settler].
type handed struct {
	member  *member
	message *message

	// Below: under the member's mu.
	deadline time.Time
	gone     bool // settled, given back, or lost
	busy     bool // a settle is under way
}

// settleTimeout bounds a settle that must wait for the server, when its context
// does not.
const settleTimeout = 5 * time.Second

// settling bounds a settle by ctx, unless that has ended before [ACK-8].
func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(ctx, settleTimeout)
}

// Settle implements [reactor.Settler].
func (h *handed) Settle(ctx context.Context, o reactor.Outcome) error {
	m, p := h.member, h.message
	m.mu.Lock()
	if h.gone {
		m.mu.Unlock()
		return reactor.ErrLost
	}
	h.busy = true
	m.mu.Unlock()

	err := m.settle(ctx, p, o)

	m.mu.Lock()
	h.busy = false
	if err == nil {
		h.gone = true
		delete(m.out, h)
	}
	m.mu.Unlock()
	return err
}

// Extend implements [reactor.Settler].
func (h *handed) Extend(ctx context.Context) (time.Time, error) {
	m, p := h.member, h.message
	m.mu.Lock()
	until := p.lease.Add(m.serverWait())
	m.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	called := time.Now()
	began, err := m.extend(ctx, p, &h.gone)
	if err != nil {
		return time.Time{}, fmt.Errorf("jetstream: extend: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.gone { // while we asked
		return time.Time{}, reactor.ErrLost
	}
	p.lease = began
	h.deadline = called.Add(m.settings().AckWait)
	return h.deadline, nil
}

// settle does with a message what an outcome says.
func (m *member) settle(ctx context.Context, p *message, o reactor.Outcome) error {
	switch o.Result {
	case reactor.Acked:
		if m.id.DeadLettersOf != "" {
			if err := m.remove(ctx, p); err != nil {
				return err
			}
		}
		return m.finish(ctx, p, ackDone)
	case reactor.Retried:
		if most := m.settings().MaxAttempts; most == 0 || p.attempt() < most {
			if p.noted { // by a Release that then failed
				if err := m.writeNotes(ctx, []*message{p}, 0); err != nil {
					return err
				}
			}
			return m.respond(ctx, p, nakAfter(o.After))
		}
	case reactor.Released:
		return m.release(ctx, p)
	}
	return m.bury(ctx, p, o.Reason)
}

// respond sends an acknowledgement, and waits for its confirmation if the
// broker was told to.
func (m *member) respond(ctx context.Context, p *message, ack []byte) error {
	nc := m.broker.nc
	if !m.broker.cfg.ConfirmedAcks {
		if err := nc.Publish(p.Msg.Reply, ack); err != nil {
			return fmt.Errorf("jetstream: settle: %w", err)
		}
	} else {
		ctx, cancel := settling(ctx)
		defer cancel()
		if _, err := nc.RequestWithContext(ctx, p.Msg.Reply, ack); err != nil {
			return fmt.Errorf("jetstream: settle: %w", err)
		}
	}
	return nil
}

// finish sends the acknowledgement that ends a message for this subscription.
func (m *member) finish(ctx context.Context, p *message, ack []byte) error {
	if err := m.respond(ctx, p, ack); err != nil {
		return err
	}
	if p.credit > 0 || p.noted {
		m.forgetCredit(p)
	}
	return nil
}

// remove takes a dead letter out, for it was dealt with [DLQ-4].
func (m *member) remove(ctx context.Context, p *message) error {
	ctx, cancel := settling(ctx)
	defer cancel()
	err := m.broker.dead.DeleteMsg(ctx, p.sequence)
	var api *natsjs.APIError
	if errors.As(err, &api) && api.ErrorCode == natsjs.JSErrCodeMessageNotFound || err != nil && strings.Contains(err.Error(), "no message found") {
		return nil // another reader of the same dead letters has, or we have before
	}
	return err
}
