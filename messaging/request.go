package messaging

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// A Requester publishes requests and waits for their replies, which [Reply]
// makes. It is safe for concurrent use. Requests and replies stay in the log
// like other events; the types of replies begin with catchment.reply.
type Requester struct {
	broker Broker
	id     string
	sub    Subscription // to the replies
	close  func() error // once

	// Ends all that is done for the requester.
	life context.Context
	stop context.CancelFunc
	done chan struct{} // closed when nothing receives any more

	mu sync.Mutex
	// Below: under mu.
	waiting map[string]chan<- event.Event // by the token of the request; with room for one
	late    uint64
	last    uint64 // the sequence of the latest reply; 0: there was none
}

// The extensions of a request. A reply has the token alone.
const (
	extensionReplyTo = "catchmentreplyto" // the requester's id
	extensionToken   = "catchmentrequest" // the request's token
)

const (
	replyPrefix  = "catchment.reply."
	replyExpires = time.Minute     // of the subscription, when its requester died
	replyWorkers = 16              // that settle replies at once
	closeTimeout = 5 * time.Second // for deleting the subscription
)

var resumeBackoff = reactor.Exponential(100*time.Millisecond, 10*time.Second)

// NewRequester subscribes to replies, until Close. Errors are Subscribe's:
// [errors.ErrUnsupported] from a provider without Expires.
func NewRequester(ctx context.Context, b Broker) (*Requester, error) {
	id := newToken()
	r := &Requester{
		broker: b,
		id:     id,
		sub: Subscription{
			Name:    "reply-" + id,
			Types:   []string{replyTypes(id) + ">"},
			Start:   StartNew(),
			Expires: replyExpires,
		},
		done:    make(chan struct{}),
		waiting: make(map[string]chan<- event.Event),
	}
	src, err := b.Subscribe(ctx, r.sub, nil)
	if err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	r.life, r.stop = context.WithCancel(context.Background())
	r.close = sync.OnceValue(r.shut)
	go r.receive(src)
	return r, nil
}

// Request publishes a copy of ask and returns the first reply to it, as the
// replier made it, or an error: the context's, though the request may still be
// handled; ErrClosed after Close; or Publish's. The copy has two extensions,
// catchmentreplyto and catchmentrequest, and an id that only ends in ask's, so
// that the same event can be asked again [PUB-3]; Reply takes them off.
func (r *Requester) Request(ctx context.Context, ask event.Event) (event.Event, error) {
	if r.life.Err() != nil {
		return event.Event{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return event.Event{}, err
	}
	token := newToken()
	request, c, err := withToken(ask, token, requestMark)
	if err != nil {
		return event.Event{}, err
	}
	c.Extensions[extensionReplyTo] = r.id

	reply := make(chan event.Event, 1)
	r.mu.Lock()
	r.waiting[token] = reply
	r.mu.Unlock()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	if err = r.broker.Publish(both, request); err == nil {
		select {
		case e := <-reply:
			return e, nil
		case <-both.Done():
			err = ctx.Err()
		}
	}
	switch {
	case !r.forget(token):
		return <-reply, nil // deliver has it, and is about to send it
	case r.life.Err() != nil:
		err = ErrClosed
	}
	return event.Event{}, err
}

// forget ends the wait for a reply. It reports whether there was none yet.
func (r *Requester) forget(token string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, waits := r.waiting[token]
	delete(r.waiting, token)
	return waits
}

// Late returns how many replies were dropped because no Request waited for them
// any more: its context had ended, or another reply was first.
func (r *Requester) Late() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// Close ends the requester; Requests that wait return ErrClosed. It deletes the
// subscription through the broker's Admin, or else leaves it to expire in a
// minute, and returns an error if that failed. It is idempotent.
func (r *Requester) Close() error { return r.close() }

func (r *Requester) shut() error {
	r.stop()
	<-r.done
	admin, err := AdminOf(r.broker)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_, err = admin.Delete(ctx, r.sub)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// receive passes replies on until the requester is closed, or its broker.
func (r *Requester) receive(src Source) {
	defer close(r.done)
	defer r.stop()
	for src != nil {
		err := reactor.Run(r.life, src, r.deliver, &Options{Concurrency: replyWorkers})
		src = r.resume(err)
	}
}

// resume subscribes again when the subscription has ended with err: it was
// deleted, or expired in an outage. It returns nil when there is no use in it.
func (r *Requester) resume(err error) Source {
	for try := 1; r.life.Err() == nil && !errors.Is(err, ErrClosed); try++ {
		Report(nil).Do(r.life, fmt.Errorf("messaging: replies ended, subscribing again: %w", err))
		select {
		case <-time.After(resumeBackoff(try)):
		case <-r.life.Done():
			return nil
		}
		var src Source
		sub := r.sub
		sub.Start = r.next()
		src, err = r.broker.Subscribe(r.life, sub, nil)
		if errors.Is(err, errors.ErrUnsupported) { // no Positions
			src, err = r.broker.Subscribe(r.life, r.sub, nil)
		}
		if err == nil {
			return src
		}
	}
	return nil
}

// next is where a reply begins that has not come yet. Before the first came,
// all that the log has are such.
func (r *Requester) next() Start {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == 0 {
		return StartFirst()
	}
	return StartFrom(r.last + 1)
}

// deliver gives a reply to the Request that waits for it.
func (r *Requester) deliver(ctx context.Context, e event.Event) error {
	token := tokenOf(e)
	r.mu.Lock()
	r.last = max(r.last, reactor.InfoFrom(ctx).Sequence)
	reply := r.waiting[token]
	delete(r.waiting, token)
	if reply == nil {
		r.late++
	}
	r.mu.Unlock()
	if reply != nil {
		c := withoutToken(e, token, replyMark)
		c.Type = strings.TrimPrefix(c.Type, replyTypes(r.id))
		reply <- e
	}
	return nil
}

// Reply returns a handler that publishes what h returns as the reply to a
// request, which h gets as it was asked. An error of h settles the request as
// usual [RUN-1], and the requester waits on. Of an event that is no request the
// answer is dropped. Rejected are requests with malformed extensions, and those
// whose answer Publish refuses: its type is at most 214 bytes, for one.
func Reply(p Publisher, h func(ctx context.Context, ask event.Event) (event.Event, error)) Handler {
	return func(ctx context.Context, ask event.Event) error {
		to, isRequest := extension(ask, extensionReplyTo)
		if !isRequest {
			_, err := h(ctx, ask)
			return err
		}
		// The values become part of a type, and could be anybody's [SEC-1].
		token := tokenOf(ask)
		if !validToken(to) || !validToken(token) {
			return reactor.Reject(fmt.Errorf("%w: extensions %s and %s: must be %d of a-z and 2-7, each",
				ErrInvalid, extensionReplyTo, extensionToken, tokenLength))
		}
		ask = event.Clone(ask)
		delete(withoutToken(ask, token, requestMark).Extensions, extensionReplyTo)
		answer, err := h(ctx, ask)
		if err != nil {
			return err
		}
		reply, c, err := withToken(answer, token, replyMark)
		if err != nil {
			return reactor.Reject(fmt.Errorf("the reply: %w", err))
		}
		c.Type = replyTypes(to) + c.Type
		err = p.Publish(ctx, reply)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrInvalid), errors.Is(err, ErrTooLarge):
			return reactor.Reject(fmt.Errorf("the reply, as type %q: %w", c.Type, err))
		}
		return fmt.Errorf("publish the reply: %w", err)
	}
}

// replyTypes is what the types of replies to a requester begin with.
func replyTypes(id string) string { return replyPrefix + id + "." }

// What stands between a token and an id.
const (
	requestMark = ".ask."
	replyMark   = ".reply."
)

// withToken returns a copy of e with a request's token as an extension, and
// before its id with a mark: an event that was stored already must not pass for
// a duplicate of itself, nor a reply for one of its request [PUB-3]. c is the
// copy's context, with Extensions.
func withToken(e event.Event, token, mark string) (out event.Event, c *sdk.EventContextV1, err error) {
	if err := event.Check(e); err != nil { // what is added would hide that an attribute is missing
		return event.Event{}, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	out = event.Clone(e)
	c = out.Context.(*sdk.EventContextV1) // as Check says
	c.ID = token + mark + c.ID            // the setters would trim it
	if c.Extensions == nil {
		c.Extensions = make(map[string]any)
	}
	c.Extensions[extensionToken] = token
	return out, c, nil
}

// withoutToken undoes withToken in e, of which tokenOf returned token, and
// returns e's context. A peer that does not use this package may have left the
// id alone.
func withoutToken(e event.Event, token, mark string) *sdk.EventContextV1 {
	c := e.Context.(*sdk.EventContextV1)
	c.ID = strings.TrimPrefix(c.ID, token+mark)
	delete(c.Extensions, extensionToken)
	return c
}

// tokenOf returns the token in e's extension, of whatever form; "": none.
func tokenOf(e event.Event) string {
	token, _ := extension(e, extensionToken)
	return token
}

// extension returns the value of an extension, and whether there is one: ""
// for one that is no string. It bears any event.
func extension(e event.Event, name string) (value string, ok bool) {
	c, _ := e.Context.(*sdk.EventContextV1)
	if c == nil {
		return "", false
	}
	v, ok := c.Extensions[name]
	value, _ = v.(string)
	return value, ok
}

// A token names a requester or a request, and is fit for a type and a name.
const tokenLength = 24

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567")

func newToken() string {
	var b [tokenLength * 5 / 8]byte
	rand.Read(b[:]) // never fails
	return tokenEncoding.EncodeToString(b[:])
}

func validToken(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return len(s) == tokenLength
}
