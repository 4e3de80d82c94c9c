package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A member is one source of a subscription. A message that the server sends it
// is in the member's keeping until it is handed out: it waits to be received,
// or for an answer about its attempts, or to be stored as a dead letter. What
// is kept is kept alive (lease.go); where it comes from is in pull.go; how it
// is settled, in settle.go and bury.go.
//
// The client calls message for everything that arrives, and one goroutine, mind,
// looks after time and the connection.
type member struct {
	broker   *Broker
	id       messaging.Subscription // its name; for the rest see settings
	report   messaging.Report
	current  atomic.Pointer[incarnation]
	prefix   string // of the subjects it reads
	inbox    string // prefix of what it asks for
	incoming *nats.Subscription
	changes  *nats.Subscription

	ctx    context.Context // of what it does by itself
	cancel context.CancelFunc
	work   sync.WaitGroup
	close  func() error // once

	available chan struct{} // room for one: the first of ready can be received
	ended     chan struct{} // closed with err
	nudge     chan struct{} // room for one: mind should look now

	mu sync.Mutex
	// Below: under mu.
	err     error                 // why it has ended
	closing bool                  // what it keeps is given back
	kept    map[*message]struct{} // in its keeping
	ready   []*message            // of these, what waits to be received, in order
	asked   map[uint64]*message   // of these, what is not counted yet, by token
	probes  map[uint64]probe      // requests for more time, by token
	late    []*message            // arrived after the end
	out     map[*handed]struct{}
	token   uint64
	echoes  map[uint64]time.Time // when m asked for its own message, by token
	heard   time.Time            // when it asked for the last that came
	pulls   pulls
	usage   usage
	gap     gap
	checked time.Time // when the consumer was last looked for
	check   bool      // it should be
	looking bool      // it is being
	stale   bool      // it should be before anything is pulled or received
	doubts  int       // how often that was found
	giving  bool      // what it does not use is being given back
}

// newMember opens a member. It listens for changes before it looks at the
// subscription, so that it misses none.
func newMember(ctx context.Context, b *Broker, sub messaging.Subscription, report messaging.Report) (*member, error) {
	_, prefix := b.log(sub)
	m := &member{
		broker:    b,
		id:        messaging.Subscription{Name: sub.Name, DeadLettersOf: sub.DeadLettersOf},
		report:    report,
		prefix:    prefix,
		inbox:     b.nc.NewInbox() + ".",
		available: make(chan struct{}, 1),
		ended:     make(chan struct{}),
		nudge:     make(chan struct{}, 1),
		kept:      make(map[*message]struct{}),
		asked:     make(map[uint64]*message),
		probes:    make(map[uint64]probe),
		echoes:    make(map[uint64]time.Time),
		heard:     time.Now(), // nothing was sent to this inbox before
		out:       make(map[*handed]struct{}),
	}
	m.close = sync.OnceValue(m.shut)
	var err error
	if m.changes, err = b.nc.Subscribe(b.changed(m.id), m.changed); err != nil {
		return nil, err
	}
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.publish.ctx, cancel)() // Close ends it
	var i *incarnation
	err = asking(asked, b.nc, func(ctx context.Context) (err error) {
		i, err = b.subscribe(ctx, sub)
		return err
	})
	if err != nil {
		return nil, errors.Join(cmp.Or(context.Cause(b.publish.ctx), err), m.changes.Unsubscribe())
	}
	m.begin(i)
	if m.incoming, err = b.nc.Subscribe(m.inbox+">", m.message); err != nil {
		return nil, errors.Join(err, m.changes.Unsubscribe())
	}
	if err := m.incoming.SetPendingLimits(-1, -1); err != nil { // pulls bound it
		return nil, errors.Join(err, m.changes.Unsubscribe(), m.incoming.Unsubscribe())
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.work.Go(m.mind)
	return m, nil
}

// begin reads an incarnation, from where it is.
func (m *member) begin(i *incarnation) {
	m.current.Store(i)
	info := i.consumer.CachedInfo()
	m.gap = gap{sequence: info.Delivered.Stream, delivery: info.Delivered.Consumer, behind: i.behind}
}

// now is the incarnation that m reads.
func (m *member) now() *incarnation { return m.current.Load() }

// settings are the subscription's, as far as m knows.
func (m *member) settings() messaging.Subscription { return m.now().sub }

// Receive implements [messaging.Source].
func (m *member) Receive(ctx context.Context) (*messaging.Delivery, error) {
	for {
		p, err := m.wait(ctx)
		if err != nil {
			return nil, err
		}
		if d, err := m.handOut(ctx, p); d != nil || err != nil {
			return d, err
		}
	}
}

// wait takes the next message that is ready. It stays in m's keeping.
func (m *member) wait(ctx context.Context) (*message, error) {
	for {
		m.mu.Lock()
		err := m.err
		if err == nil {
			err = ctx.Err()
		}
		var p *message
		var pull int
		if err == nil && m.hasReady() {
			p, m.ready[0] = m.ready[0], nil
			m.ready = m.ready[1:]
			now := time.Now()
			m.usage.note(now)
			pull = m.want(now)
		}
		more := m.hasReady()
		m.mu.Unlock()

		if more {
			signal(m.available) // for the next Receive; ours may have come for this one
		}
		m.pull(pull)
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-m.available:
		case <-m.ended:
		case <-ctx.Done():
		}
	}
}

// hasReady reports whether wait would find something. What is not counted yet
// holds up what came after it: the order of the log is worth a round trip. And
// what may be of another subscription by the same name waits until that is known.
// m.mu is held.
func (m *member) hasReady() bool { return !m.stale && len(m.ready) > 0 && m.ready[0].counted }

// tell calls the report from a goroutine that nothing waits for: it may close
// the member, or take its time.
func (m *member) tell(err error) { go m.report.Do(m.ctx, err) }

// signal leaves word in a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// handOut makes a delivery of a message. It returns neither a delivery nor an
// error for one that is no event, or that is not ours any more.
func (m *member) handOut(ctx context.Context, p *message) (*messaging.Delivery, error) {
	e, err := m.decode(p)
	if err != nil {
		m.undecodable(p, err)
		return nil, nil
	}
	var now, asked time.Time
	for {
		m.mu.Lock()
		now = time.Now()
		if p.handled {
			m.mu.Unlock()
			return nil, nil
		}
		if now.Sub(p.lease) <= Slack || !asked.IsZero() && !p.lease.Before(asked) {
			break
		}
		// The server might take it back before our AckWait is over.
		m.mu.Unlock()
		asked = now
		if err := m.renew(ctx, p); err != nil {
			m.putBack(p)
			return nil, err
		}
	}
	defer m.mu.Unlock()
	m.drop(p)
	sub := m.settings()
	h := &p.handed
	*h = handed{member: m, message: p, deadline: now.Add(sub.AckWait)}
	if last := p.lease.Add(m.serverWait()); last.Before(h.deadline) { // the answer took longer than Slack
		h.deadline = last
	}
	m.out[h] = struct{}{}
	return reactor.NewDelivery(e, reactor.Info{
		Attempt:     p.attempt(),
		MaxAttempts: sub.MaxAttempts,
		Sequence:    p.sequence,
		Stored:      p.stored,
		Annotations: m.annotations(p),
		Native:      natsjs.Msg(p),
	}, h.deadline, h), nil
}

// putBack makes a message that wait has taken the first again.
func (m *member) putBack(p *message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !p.handled {
		m.ready = slices.Insert(m.ready, 0, p)
		signal(m.available)
	}
}

// decode returns the event. Its data is a copy: what the receiver does to it is
// not seen in a dead letter.
func (m *member) decode(p *message) (event.Event, error) {
	e, err := event.NATS.Decode(p.Header, slices.Clone(p.Msg.Data))
	if err != nil {
		return e, err
	}
	if !isSubject(p.Msg.Subject, m.prefix, e.Type()) {
		return e, fmt.Errorf("subject %q is not that of its type %q", p.Msg.Subject, e.Type())
	}
	return e, nil
}

// drop takes a message out of the member's keeping. m.mu is held.
func (m *member) drop(p *message) {
	p.handled = true
	delete(m.kept, p)
}

// message takes what arrives: events, and answers to what the member asked,
// whose subjects say what that was.
func (m *member) message(msg *nats.Msg) {
	now := time.Now()
	if kind, rest, ok := m.answer(msg.Subject); ok {
		switch kind {
		case 'p':
			m.pullEnded(msg, rest, now)
		case 'k':
			m.probed(rest)
		case 'c':
			m.credited(msg, rest)
		case 'e':
			m.hear(rest)
		}
		return
	}
	p, err := newMessage(msg, m.now(), now)
	if err == errForeign {
		return
	}
	if err != nil {
		m.tell(fmt.Errorf("jetstream: subscription %q: a message that no consumer sent: %w", m.id.Name, err))
		return
	}
	m.mu.Lock()
	p.lease = m.heard
	m.pulls.outstanding = max(0, m.pulls.outstanding-1)
	m.pulls.contact = now
	if p.of.note != m.now().note { // moved just now
		m.mu.Unlock()
		return
	}
	if m.err != nil {
		m.late = append(m.late, p)
		m.mu.Unlock()
		signal(m.nudge)
		return
	}
	m.kept[p] = struct{}{}
	m.ready = append(m.ready, p)
	lost := m.watch(p)
	m.token++
	token := m.token
	counted := p.counted // read here: once m.mu is free, Close may count it
	if !counted {
		m.asked[token] = p
	}
	pull := m.want(now)
	m.mu.Unlock()
	if lost > 0 {
		m.discarded(lost)
	}
	if counted {
		signal(m.available)
	} else {
		m.askCredit(token, p)
	}
	m.pull(pull)
}

// answer takes the subject of an answer apart: what was asked, and its rest.
func (m *member) answer(subject string) (kind byte, rest string, ok bool) {
	if len(subject) < len(m.inbox)+2 || subject[:len(m.inbox)] != m.inbox {
		return 0, "", false
	}
	return subject[len(m.inbox)], subject[len(m.inbox)+2:], true
}

func formatToken(n uint64) string { return strconv.FormatUint(n, 36) }

func parseToken(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 36, 64)
	return n, err == nil
}
