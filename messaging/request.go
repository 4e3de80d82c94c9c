package messaging

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// A Requester publishes requests and waits for the replies, whose types begin
// with catchment.reply. Both stay in the log. It is safe for concurrent use.
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
	waiting map[string]expected // by the token of the request
	late    uint64
	last    uint64 // the sequence of the latest reply; 0: there was none
	again   uint64 // up to this one replies may be delivered again
}

// An expected reply is one that a Request waits for.
type expected struct {
	reply chan<- event.Event // with room for one
	after uint64             // the latest sequence before the request
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

// NewRequester subscribes to replies, which takes the capability Expires.
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
		waiting: make(map[string]expected),
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

// Request publishes a copy of ask and returns the first reply, as it was made,
// or an error: the context's, ErrClosed, or Publish's. The copy has extensions,
// catchmentreplyto and catchmentrequest, and an id that ends in ask's, so that
// it can be asked again [PUB-3]. Reply takes them off.
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
	r.waiting[token] = expected{reply, r.last}
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

// Late returns how many replies were dropped: no Request waited any more.
func (r *Requester) Late() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// Close ends the requester, and Requests that wait with ErrClosed. The
// subscription is deleted, or without an Admin expires. It is idempotent.
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

// next is where a reply begins that has not come yet: the latest may have overtaken
// one. Before the first came, all that the log has are such.
func (r *Requester) next() Start {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again = r.last
	after := r.last
	for _, w := range r.waiting {
		after = min(after, w.after)
	}
	if after == 0 {
		return StartFirst()
	}
	return StartFrom(after + 1)
}

// deliver gives a reply to the Request that waits for it.
func (r *Requester) deliver(ctx context.Context, e event.Event) error {
	token := tokenOf(e)
	r.mu.Lock()
	sequence := reactor.InfoFrom(ctx).Sequence
	r.last = max(r.last, sequence)
	reply := r.waiting[token].reply
	delete(r.waiting, token)
	if reply == nil && (sequence == 0 || sequence > r.again) {
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
