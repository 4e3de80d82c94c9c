package messaging

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// Reply returns a handler that publishes what h returns as the reply to a
// request, which h gets as it was asked. An error of h settles it as usual
// [RUN-1]. What h says to an event that is no request is dropped. Rejected is
// a request with malformed extensions, or whose answer Publish refuses.
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
