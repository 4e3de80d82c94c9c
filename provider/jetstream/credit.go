package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/reactor"
)

// The server counts every delivery of a message; a failed one is an attempt,
// one that was given back is not [RCV-2]. So each that is given back is noted
// beside the dead letters, before it is: under a subject that names the
// consumer's incarnation and the message, with the number of such deliveries.
// Whoever gets a message for the second time or more asks for the note.

func (m *member) creditSubject(p *message) string {
	return p.of.note + strconv.FormatUint(p.sequence, 10)
}

// handBack gives messages back to the server, for any member, at once, and
// their deliveries do not count as attempts.
func (m *member) handBack(ctx context.Context, back []*message) error {
	if len(back) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	// Without its note a delivery counts; to wait for AckWait would count, too.
	failed := m.writeNotes(ctx, back, 1)
	return errors.Join(failed, m.give(ctx, back))
}

// release hands back a message that its receiver does not want. Nothing is given
// back if that cannot be noted: then it has not settled [ACK-6].
func (m *member) release(ctx context.Context, p *message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	back := []*message{p}
	if err := m.writeNotes(ctx, back, 1); err != nil {
		return err
	}
	return m.give(ctx, back)
}

// giveUp hands back what the member has fetched and does not use, unless that
// would count as an attempt.
func (m *member) giveUp(surplus []*message) {
	defer func() {
		m.mu.Lock()
		m.giving = false
		m.mu.Unlock()
		signal(m.nudge)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), settleTimeout)
	defer cancel()
	failed := m.writeNotes(ctx, surplus, 1)
	m.mu.Lock()
	closing := m.err != nil
	m.mu.Unlock()
	if failed == nil || closing {
		_ = m.give(ctx, surplus)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range surplus {
		p.handled = false
		m.kept[p] = struct{}{}
		m.ready = append(m.ready, p)
	}
	slices.SortStableFunc(m.ready, bySequence)
	signal(m.available)
}

func bySequence(a, b *message) int { return cmp.Compare(a.sequence, b.sequence) }

// writeNotes notes that deliveries were not attempts; with given 0, that they are,
// should the opposite have been noted.
func (m *member) writeNotes(ctx context.Context, back []*message, given int) error {
	var notes []*nats.Msg
	for _, p := range back {
		if !p.counted && !m.count(ctx, p) {
			continue // to write less than there is would be worse
		}
		p.noted = given > 0
		p.notes++
		notes = append(notes, &nats.Msg{
			Subject: m.creditSubject(p),
			Header: nats.Header{
				natsjs.MsgRollup:   {natsjs.MsgRollupSubject},
				natsjs.MsgIDHeader: {fmt.Sprintf("%s.%d.%d", m.creditSubject(p), p.delivered, p.notes)},
			},
			Data: strconv.AppendInt(nil, int64(p.credit+given), 10),
		})
	}
	if err := errors.Join(m.broker.publish.publish(ctx, notes...)...); err != nil {
		return fmt.Errorf("jetstream: subscription %q: note what is given back: %w", m.id.Name, err)
	}
	return nil
}

// give gives messages back, in the order of the log, in which the server then
// delivers them again. The last is confirmed, and with it those before: what is
// pulled after that gets them before anything new.
func (m *member) give(ctx context.Context, back []*message) error {
	// What took too long is somebody else's by now.
	back = slices.DeleteFunc(back, func(p *message) bool { return !m.held(p) })
	if len(back) == 0 {
		return reactor.ErrLost
	}
	slices.SortFunc(back, bySequence)
	last := len(back) - 1
	var errs []error
	for _, p := range back[:last] {
		errs = append(errs, m.broker.nc.Publish(p.Msg.Reply, ackNak))
	}
	_, err := m.broker.nc.RequestWithContext(ctx, back[last].Msg.Reply, ackNak)
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("jetstream: subscription %q: give back: %w", m.id.Name, err)
	}
	return nil
}

// askCredit asks for a message's note. The answer comes to message.
func (m *member) askCredit(token uint64, p *message) {
	// Should it be lost, mind asks again.
	_ = m.broker.nc.PublishMsg(&nats.Msg{
		Subject: m.broker.getSubject(),
		Reply:   m.inbox + "c." + formatToken(token),
		Data:    getLast(m.creditSubject(p)),
	})
}

// count asks for a message's note, and waits for the answer.
func (m *member) count(ctx context.Context, p *message) bool {
	note, _, err := m.broker.lastOf(ctx, m.creditSubject(p))
	if err != nil {
		return false
	}
	p.credit, p.counted = parseCredit(note), true
	return true
}

func parseCredit(note []byte) int {
	credit, _ := strconv.Atoi(string(note)) // we wrote it; none is 0
	return credit
}

// lastOf returns the last message under a subject of the stream beside the log,
// from the stream's leader: a replica may not have what was written just now.
// Without any the sequence is 0.
func (b *Broker) lastOf(ctx context.Context, subject string) (data []byte, sequence uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	msg, err := b.nc.RequestWithContext(ctx, b.getSubject(), getLast(subject))
	if err != nil {
		return nil, 0, fmt.Errorf("stream %q: %w", b.cfg.deadStream(), err)
	}
	return parseLast(msg)
}

func (b *Broker) getSubject() string { return "$JS.API.STREAM.MSG.GET." + b.cfg.deadStream() }

func getLast(subject string) []byte {
	body, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		panic(err) // strings, all of them
	}
	return body
}

// noMessage is the server's error code for a subject without a message.
const noMessage natsjs.ErrorCode = 10037

func parseLast(msg *nats.Msg) (data []byte, sequence uint64, err error) {
	var answer struct {
		Message struct {
			Sequence uint64 `json:"seq"`
			Data     []byte `json:"data"`
		} `json:"message"`
		Error *natsjs.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, 0, err
	}
	if answer.Error == nil {
		return answer.Message.Data, answer.Message.Sequence, nil
	}
	if answer.Error.ErrorCode == noMessage {
		return nil, 0, nil
	}
	return nil, 0, answer.Error
}

// credited takes the answer to askCredit: the message can be received now, or
// is dead.
func (m *member) credited(msg *nats.Msg, rest string) {
	token, ok := parseToken(rest)
	if !ok {
		return
	}
	note, _, err := parseLast(msg)
	if err != nil {
		return // mind asks again
	}
	m.mu.Lock()
	p := m.asked[token]
	delete(m.asked, token)
	if p == nil || p.handled {
		m.mu.Unlock()
		return
	}
	p.credit, p.counted = parseCredit(note), true
	most := m.settings().MaxAttempts
	dead := most > 0 && p.attempt() > most
	if dead {
		m.ready = remove(m.ready, p)
		m.drop(p)
	}
	m.mu.Unlock()
	signal(m.available)
	switch {
	case !dead:
	case m.id.DeadLettersOf != "":
		_ = m.finish(m.ctx, p, ackTerm)
	default:
		m.keep(p, m.letter(p, m.overdue(), most), nil)
	}
}

// forgetCredit removes a message's note, when it is settled.
func (m *member) forgetCredit(p *message) {
	body, _ := json.Marshal(map[string]string{"filter": m.creditSubject(p)})
	_ = m.broker.nc.PublishMsg(&nats.Msg{
		Subject: "$JS.API.STREAM.PURGE." + m.broker.cfg.deadStream(),
		Reply:   m.inbox + "x.0", // the server answers only who wants to know
		Data:    body,
	})
}

// surplus takes out of ready what has waited, and is more than the member has
// lately used: somebody else may want it [SUB-5]. Until it is given back nothing
// is pulled, or was: it would come before that [RCV-3]. m.mu is held.
func (m *member) surplus(now time.Time) []*message {
	target := m.usage.target(now, m.now().most)
	if m.giving || m.pulls.outstanding > 0 || len(m.ready) <= target || now.Sub(m.ready[target].arrived) < time.Second {
		return nil
	}
	m.giving = true
	back := slices.Clone(m.ready[target:])
	m.ready = m.ready[:target:target]
	for _, p := range back {
		m.drop(p)
	}
	return back
}
