package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// annotationPrefix is that of the headers with annotations: no attribute's
// header begins with it.
const annotationPrefix = "Catchment-"

// annotations reads the annotations of a message.
func annotations(header nats.Header) (out map[string]string) {
	for name, values := range header {
		key, ok := strings.CutPrefix(name, annotationPrefix)
		if !ok || len(values) == 0 {
			continue
		}
		if v, err := url.PathUnescape(values[0]); err == nil {
			if out == nil {
				out = make(map[string]string)
			}
			out[key] = v
		}
	}
	return out
}

// annotations returns those of a dead letter. In the log they could be anybody's.
func (m *member) annotations(p *message) map[string]string {
	if m.id.DeadLettersOf == "" {
		return nil
	}
	return annotations(p.Header)
}

// infoOf is what DeadLetterFrom needs of a delivery.
func infoOf(header nats.Header) reactor.Info {
	return reactor.Info{Annotations: annotations(header)}
}

// bury settles a message for good: it is stored with the dead letters, and then
// terminated [DLQ-3]. While it cannot be stored it stays in the member's
// keeping, and is tried again. A dead letter itself stays where it is [DLQ-4].
func (m *member) bury(ctx context.Context, p *message, reason string) error {
	if m.id.DeadLettersOf != "" {
		return m.finish(ctx, p, ackTerm)
	}
	letter := m.letter(p, reason, p.attempt())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := m.store(ctx, p, letter); err != nil {
		if !m.keep(p, letter, err) {
			return err
		}
		return nil
	}
	if !m.held(p) {
		return reactor.ErrLost // stored, and whoever has it now does so under the same id
	}
	return m.finish(ctx, p, ackTerm)
}

// letter is the dead letter of a message: what it was, under the subjects of
// the dead letters, with annotations.
func (m *member) letter(p *message, reason string, attempts int) *nats.Msg {
	header := make(nats.Header, len(p.Header)+6)
	for name, values := range p.Header {
		if !strings.HasPrefix(name, "Nats-") && !strings.HasPrefix(name, annotationPrefix) {
			header[name] = values
		}
	}
	for key, v := range (messaging.DeadLetter{
		Subscription: m.id.Name,
		Reason:       reason,
		Attempts:     attempts,
		Sequence:     p.sequence,
		Stored:       p.stored,
		Died:         time.Now(),
	}).Annotations() {
		header[annotationPrefix+key] = []string{url.PathEscape(v)}
	}
	header[natsjs.MsgIDHeader] = []string{m.burialID(p)}
	return &nats.Msg{
		Subject: m.broker.letters(m.id.Name) + strings.TrimPrefix(p.Msg.Subject, m.prefix),
		Header:  header,
		Data:    p.Msg.Data,
	}
}

// burialID is the message id of a dead letter: another than the event's, and
// the same each time that this incarnation of the subscription buries it, so
// that a crash between storing and terminating does not double it.
func (m *member) burialID(p *message) string {
	return p.of.note + strconv.FormatUint(p.sequence, 10)
}

// undecodable ends a message that is no event: it is reported, kept as it is
// beside the dead letters, and terminated [RCV-5].
func (m *member) undecodable(p *message, cause error) {
	header := make(map[string][]string, len(p.Header))
	for name, values := range p.Header {
		header[name] = append([]string(nil), values...)
	}
	bad := &messaging.DecodeError{
		Subscription: m.id.Name,
		Sequence:     p.sequence,
		Header:       header,
		Body:         append([]byte(nil), p.Msg.Data...),
		Err:          cause,
	}
	m.report.Do(m.ctx, bad)
	raw := m.letter(p, cause.Error(), p.attempt())
	raw.Subject = m.broker.raw(m.id.Name)
	for name, values := range p.Header {
		if strings.HasPrefix(name, "Nats-") {
			continue
		}
		// Under its own name it might mean something to the server.
		if !strings.HasPrefix(name, annotationPrefix) {
			delete(raw.Header, name)
		}
		raw.Header[rawPrefix+name] = values
	}
	m.keep(p, raw, nil)
}

// rawPrefix is that of the headers of a message that is no event, as it is kept.
const rawPrefix = "Raw-"

// overdue is the reason of an event whose last delivery nobody settled.
func (m *member) overdue() string {
	return fmt.Sprintf("the last of %d attempts was not settled within %v, or its process died", m.settings().MaxAttempts, m.settings().AckWait)
}

// store stores a letter, acknowledged by the server.
func (m *member) store(ctx context.Context, p *message, letter *nats.Msg) error {
	if errs := m.broker.publish.publish(ctx, letter); errs != nil {
		return fmt.Errorf("jetstream: subscription %q: event %d cannot join the dead letters: %w", m.id.Name, p.sequence, errs[0])
	}
	return nil
}

var buryBackoff = reactor.Exponential(100*time.Millisecond, 10*time.Second)

// keep takes a message into the member's keeping until its letter is stored.
// err is why it is not yet; nil: nobody has tried. It reports whether it has: of a
// member that has ended the server delivers it again.
func (m *member) keep(p *message, letter *nats.Msg, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return false
	}
	p.handled, p.dying = false, true
	m.kept[p] = struct{}{}
	m.work.Go(func() { m.keepTrying(p, letter, err) })
	signal(m.nudge)
	return true
}

func (m *member) keepTrying(p *message, letter *nats.Msg, err error) {
	for try := 1; ; try++ {
		if err != nil {
			m.tell(err)
			select {
			case <-m.ctx.Done(): // once more
			case <-time.After(buryBackoff(try)):
			}
		}
		m.mu.Lock()
		if p.handled { // lost, or given back
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		// A store that has begun goes on when the member closes: given back
		// meanwhile, the message would be stored twice.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), patience)
		err = m.store(ctx, p, letter)
		cancel()
		m.mu.Lock()
		lost, closing := p.handled, m.closing
		stored := err == nil || errors.Is(err, messaging.ErrTooLarge)
		if !lost && (stored || closing) {
			m.drop(p)
		}
		m.mu.Unlock()
		switch {
		case lost:
			return
		case stored:
			if err != nil {
				m.tell(err)
			}
			if m.held(p) {
				if err := m.finish(context.WithoutCancel(m.ctx), p, ackTerm); err != nil {
					m.tell(err)
				}
			}
			return
		case closing:
			// Without a note: its last attempt has failed, and whoever gets it
			// next buries it.
			m.tell(err)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), settleTimeout)
			_ = m.give(ctx, []*message{p})
			cancel()
			return
		}
	}
}
