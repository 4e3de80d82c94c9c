package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

const (
	// patience is how long a message may go without an answer before it is
	// sent again, with the same id: a leader that steps down answers nothing.
	patience = 2 * time.Second

	// Of a message that was refused for the time being.
	minPublishBackoff = 20 * time.Millisecond
	maxPublishBackoff = 500 * time.Millisecond
)

var publishBackoff = reactor.Exponential(minPublishBackoff, maxPublishBackoff)

// A publisher sends messages and waits for the server's answers, of many
// callers at once, over one reply inbox. A message goes out in as many rounds
// as it takes, always with the same id, so that the server stores it once.
//
// It is our own because the client's async publisher fails after 200 ms of
// stall, fails everything at a reconnect, and takes no context; and because a
// counter for a reply token and a look at the first bytes of an answer are
// most of what an acknowledged publish costs a client.
type publisher struct {
	nc     *nats.Conn
	inbox  string        // prefix of reply subjects
	window chan struct{} // a slot for each message on its way
	sub    *nats.Subscription
	ctx    context.Context // of every call
	stop   context.CancelCauseFunc

	mu sync.Mutex
	// Below: under mu.
	next    uint64
	waiting map[uint64]*sending // by reply token
}

// A sending is one message of one call.
type sending struct {
	call  *call
	index int
	sent  bool // once at least; before, nobody but its call knows of it
	// Below: under the publisher's mu, once it was sent.
	slot   bool      // it has one of the window
	open   bool      // counted in call.open
	tokens []uint64  // of rounds that have no answer yet
	first  [1]uint64 // room for tokens: most messages are sent once
	stored bool
	err    error // why the last answer was a refusal
	final  bool  // no use in sending it again
}

// A call is the messages of one Publish. They are made one at a time, each when
// it is sent, and again should it be sent again: the server is at work by the
// time the second is made, and so they can share the memory that they are in.
type call struct {
	message func(index int) (*nats.Msg, error) // valid until the next is made
	open    int                                // messages of this round without an answer; under the publisher's mu
	done    chan struct{}                      // room for one: open has come to 0
}

func newPublisher(nc *nats.Conn, maxPending int) (*publisher, error) {
	p := &publisher{
		nc:      nc,
		inbox:   nc.NewInbox() + ".",
		window:  make(chan struct{}, maxPending),
		waiting: make(map[uint64]*sending),
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	sub, err := nc.Subscribe(p.inbox+"*", p.answer)
	if err != nil {
		return nil, err
	}
	p.sub = sub
	return p, sub.SetPendingLimits(-1, -1) // the window bounds it
}

// close ends the calls that are under way, with ErrClosed.
func (p *publisher) close() {
	p.stop(messaging.ErrClosed)
	_ = p.sub.Unsubscribe()
}

// ended is why a call goes on no longer: the publisher is closed, or ctx is over.
func (p *publisher) ended(ctx context.Context) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// publish sends the messages and returns an error for each: nil, it is stored;
// one that wraps ErrUnknown, it may be; any other, it is not. A nil slice says
// that all are stored.
func (p *publisher) publish(ctx context.Context, msgs ...*nats.Msg) []error {
	return p.publishEach(ctx, len(msgs), func(i int) (*nats.Msg, error) { return msgs[i], nil })
}

// publishEach is publish for so many messages, which it asks for in their order,
// and uses until it asks for the next.
func (p *publisher) publishEach(ctx context.Context, messages int, message func(index int) (*nats.Msg, error)) []error {
	if messages == 0 {
		return nil
	}
	c := &call{message: message, done: make(chan struct{}, 1)}
	all := make([]sending, messages)
	todo := make([]*sending, messages)
	for i := range all {
		s := &all[i]
		s.call, s.index, s.tokens = c, i, s.first[:0]
		todo[i] = s
	}
	for round := 1; ; round++ {
		p.round(ctx, c, todo)
		if todo = p.unstored(todo); len(todo) == 0 || p.ended(ctx) != nil {
			break
		}
		p.pause(ctx, publishBackoff(round))
	}
	return p.results(ctx, all)
}

// round sends each message once and waits until all are answered, or none has
// been for as long as patience lasts.
func (p *publisher) round(ctx context.Context, c *call, todo []*sending) {
	p.mu.Lock()
	c.open = len(todo)
	for _, s := range todo {
		s.open = true
	}
	select {
	case <-c.done: // left over from the round before
	default:
	}
	p.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	for i, s := range todo {
		m, err := c.message(s.index)
		if err != nil {
			p.refuse(s, err)
			continue
		}
		if !p.enter(ctx, s, timer) {
			p.skip(todo[i:])
			return
		}
		if err := p.send(s, m); err != nil {
			p.refuse(s, err)
		}
	}
	for {
		timer.Reset(patience)
		p.mu.Lock()
		open := c.open
		p.mu.Unlock()
		select {
		case <-c.done:
			return
		case <-ctx.Done():
			return
		case <-p.ctx.Done():
			return
		case <-timer.C:
			p.mu.Lock()
			progress := c.open < open
			p.mu.Unlock()
			if !progress {
				return
			}
		}
	}
}

// enter takes a slot for a message that has none. It frees when the message
// needs no more sending, so this waits for the server, for as long as timer
// runs.
func (p *publisher) enter(ctx context.Context, s *sending, timer *time.Timer) bool {
	if s.sent {
		p.mu.Lock()
		has := s.slot
		p.mu.Unlock()
		if has {
			return true
		}
	}
	select {
	case p.window <- struct{}{}:
	default:
		timer.Reset(patience) // the one before was had by an answer
		select {
		case p.window <- struct{}{}:
		case <-ctx.Done():
			return false
		case <-p.ctx.Done():
			return false
		case <-timer.C:
			return false
		}
	}
	if s.sent {
		p.mu.Lock()
		defer p.mu.Unlock()
	}
	s.slot = true
	return true
}

// leave frees a message's slot. p.mu is held.
func (p *publisher) leave(s *sending) {
	if s.slot {
		s.slot = false
		<-p.window // never blocks: the slot is in it
	}
}

// send registers a token for the message, which has entered, and sends it.
func (p *publisher) send(s *sending, m *nats.Msg) error {
	p.mu.Lock()
	s.sent = true
	p.next++
	token := p.next
	p.waiting[token] = s
	s.tokens = append(s.tokens, token)
	p.mu.Unlock()

	m.Reply = p.reply(token)
	err := p.nc.PublishMsg(m) // which keeps nothing of it
	if err != nil {
		// It went nowhere: no answer will come for this token.
		p.mu.Lock()
		p.forget(token, s)
		p.mu.Unlock()
	}
	return err
}

// reply is the subject that a token's answer comes under.
func (p *publisher) reply(token uint64) string {
	var buf [64]byte
	return string(strconv.AppendUint(append(buf[:0], p.inbox...), token, 36))
}

// forget drops a token. p.mu is held.
func (p *publisher) forget(token uint64, s *sending) {
	if _, ok := p.waiting[token]; !ok {
		return
	}
	delete(p.waiting, token)
	for i, t := range s.tokens {
		if t == token {
			s.tokens = append(s.tokens[:i], s.tokens[i+1:]...)
			break
		}
	}
}

// skip counts messages that were not sent in this round as answered.
func (p *publisher) skip(todo []*sending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range todo {
		p.answered(s)
	}
}

// refuse notes that a message could not be sent.
func (p *publisher) refuse(s *sending, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.err = err
	p.leave(s)
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		s.err, s.final = fmt.Errorf("%w: %w", messaging.ErrTooLarge, err), true
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining), errors.Is(err, messaging.ErrInvalid):
		s.final = true
	}
	p.answered(s)
}

// answered counts an answer of the current round. p.mu is held.
func (p *publisher) answered(s *sending) {
	if !s.open {
		return
	}
	s.open = false
	if s.call.open--; s.call.open == 0 {
		s.call.done <- struct{}{} // has room, for round has emptied it
	}
}

// answer takes a reply of the server.
func (p *publisher) answer(m *nats.Msg) {
	token, err := strconv.ParseUint(m.Subject[len(p.inbox):], 36, 64)
	if err != nil {
		return
	}
	stored, final, err := parseAck(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.waiting[token]
	if s == nil {
		return
	}
	latest := s.tokens[len(s.tokens)-1] == token
	p.forget(token, s)
	if s.stored {
		p.answered(s)
		p.leave(s)
		return
	}
	if s.stored = stored; !stored {
		s.err, s.final = err, final
	}
	// An answer to an earlier round says what became of that one. It ends this
	// one only if it settles the matter.
	if latest || stored {
		p.answered(s)
		p.leave(s)
	}
}

// unstored returns what another round makes sense for.
func (p *publisher) unstored(todo []*sending) []*sending {
	p.mu.Lock()
	defer p.mu.Unlock()
	var again []*sending
	for _, s := range todo {
		if !s.stored && !s.final {
			again = append(again, s)
		}
	}
	return again
}

// pause waits out a backoff, and a disconnection: what is sent meanwhile would
// only wait in the client.
func (p *publisher) pause(ctx context.Context, d time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.ctx.Done():
			return
		case <-time.After(d):
		}
		if p.nc.IsConnected() || p.nc.IsClosed() {
			return
		}
		d = minPublishBackoff
	}
}

// results says what became of each message, and ends the wait for answers.
func (p *publisher) results(ctx context.Context, all []sending) (errs []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range all {
		s := &all[i]
		// Without an answer to a round the message may be stored, whatever
		// was answered to another.
		unknown := len(s.tokens) > 0
		for len(s.tokens) > 0 {
			p.forget(s.tokens[0], s)
		}
		p.leave(s)
		if s.stored {
			continue
		}
		err := s.err
		if !s.final {
			// Given up because ctx has ended.
			err = p.ended(ctx)
			if s.err != nil {
				err = fmt.Errorf("%w: %w", err, s.err)
			}
		}
		if unknown {
			err = fmt.Errorf("%w: %w", messaging.ErrUnknown, err)
		}
		if errs == nil {
			errs = make([]error, len(all))
		}
		errs[i] = err
	}
	return errs
}
