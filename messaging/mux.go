package messaging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/reactor"
)

// A Mux hands each event to the handler whose pattern matches its type [SUB-8];
// of several, to the most specific: the one whose types all the others match.
// It is safe for concurrent use, after the calls of Handle.
type Mux struct {
	unknown Handler
	exact   map[string]Handler // patterns without * and >
	wild    []route            // each before those that include it
}

type route struct {
	pattern string
	match   event.Pattern
	handler Handler
}

// NewMux returns a Mux that gives unknown what matches no pattern, and panics
// without: [AckUnknown], [RejectUnknown], [RetryUnknown] or one of your own.
func NewMux(unknown Handler) *Mux {
	if unknown == nil {
		panic("messaging: NewMux: say what becomes of events of unknown types: AckUnknown, RejectUnknown, RetryUnknown or another handler")
	}
	return &Mux{unknown: unknown, exact: make(map[string]Handler)}
}

// Handle registers h. It panics if h is nil, or the pattern malformed, there
// before, or in conflict, as a.* and *.b are: neither is more specific.
func (m *Mux) Handle(pattern string, h Handler) {
	match, err := event.ParsePattern(pattern)
	switch {
	case err != nil:
		panic(fmt.Sprintf("messaging: Mux.Handle: %v", err))
	case h == nil:
		panic(fmt.Sprintf("messaging: Mux.Handle: the handler of pattern %q is nil", pattern))
	case m.has(pattern):
		panic(fmt.Sprintf("messaging: Mux.Handle: pattern %q is registered already", pattern))
	case !strings.ContainsAny(pattern, "*>"):
		m.exact[pattern] = h // conflicts with none: it includes itself alone
		return
	}
	place := len(m.wild)
	for i, other := range m.wild {
		if includes(other.pattern, pattern) {
			place = min(place, i)
			continue
		}
		if both, ok := overlap(pattern, other.pattern); ok && !includes(pattern, other.pattern) {
			panic(fmt.Sprintf("messaging: Mux.Handle: pattern %q conflicts with pattern %q: both match type %q, and neither is more specific than the other", pattern, other.pattern, both))
		}
	}
	m.wild = slices.Insert(m.wild, place, route{pattern, match, h})
}

func (m *Mux) has(pattern string) bool {
	_, ok := m.exact[pattern]
	return ok || slices.ContainsFunc(m.wild, func(r route) bool { return r.pattern == pattern })
}

// Dispatch calls the handler of e's type, or the one for unknown types. It is a
// [Handler], and does not allocate.
func (m *Mux) Dispatch(ctx context.Context, e event.Event) error {
	typ := e.Type()
	if h, ok := m.exact[typ]; ok {
		return h(ctx, e)
	}
	for i := range m.wild {
		if m.wild[i].match.Match(typ) {
			return m.wild[i].handler(ctx, e)
		}
	}
	return m.unknown(ctx, e)
}

// Types returns the patterns for a Subscription to what m has handlers for,
// sorted, and without those that another includes.
func (m *Mux) Types() []string {
	var types []string
	for pattern := range m.exact {
		types = append(types, pattern)
	}
	for _, r := range m.wild {
		types = append(types, r.pattern)
	}
	types = slices.DeleteFunc(types, func(pattern string) bool {
		return slices.ContainsFunc(m.wild, func(r route) bool { return r.pattern != pattern && includes(r.pattern, pattern) })
	})
	slices.Sort(types)
	return types
}

// AckUnknown acks events of unknown types, which are forgotten with that.
func AckUnknown(context.Context, event.Event) error { return nil }

// RejectUnknown rejects events of unknown types; the reason says so [ACK-4].
func RejectUnknown(_ context.Context, e event.Event) error { return reactor.Reject(unknownType(e)) }

// RetryUnknown retries events of unknown types: another member may know them.
func RetryUnknown(_ context.Context, e event.Event) error { return unknownType(e) }

func unknownType(e event.Event) error {
	if e.Type() == "" {
		return errors.New("messaging: no handler for an event without a type")
	}
	return fmt.Errorf("messaging: no handler for type %.255q", e.Type())
}

// includes reports whether pattern a matches every type that pattern b does.
// Both must be well-formed. Since there is no end of tokens, only a wildcard
// matches all that a wildcard does.
func includes(a, b string) bool {
	for {
		tokenA, restA, moreA := strings.Cut(a, ".")
		tokenB, restB, moreB := strings.Cut(b, ".")
		switch {
		case tokenA == ">":
			return true
		case tokenB == ">", tokenA != "*" && tokenA != tokenB, moreA != moreB:
			return false
		case !moreA:
			return true
		}
		a, b = restA, restB
	}
}

// overlap returns a type that both patterns match, if there is one.
func overlap(a, b string) (both string, ok bool) {
	var tokens []string
	for {
		tokenA, restA, moreA := strings.Cut(a, ".")
		tokenB, restB, moreB := strings.Cut(b, ".")
		switch {
		case tokenA == ">":
			return example(tokens, b), true
		case tokenB == ">":
			return example(tokens, a), true
		case tokenA == "*":
			tokens = append(tokens, tokenB)
		case tokenB == "*", tokenA == tokenB:
			tokens = append(tokens, tokenA)
		default:
			return "", false
		}
		if moreA != moreB {
			return "", false
		}
		if !moreA {
			return example(tokens), true
		}
		a, b = restA, restB
	}
}

// example returns a type that the pattern made of tokens and rest matches.
func example(tokens []string, rest ...string) string {
	pattern := strings.Join(append(tokens, rest...), ".")
	return strings.NewReplacer("*", "x", ">", "x").Replace(pattern)
}
