// Package filter selects events by their attributes, in the filter dialects of
// the CloudEvents Subscriptions API: exact, prefix, suffix, all, any and not.
//
// A subscription selects by type alone. A Filter selects further where the
// event is handled, see [Where], so what it leaves out was delivered, too.
//
// Attributes compare by their canonical string, which is how extensions arrive
// [EVT-3]: true, 42, base64 for bytes, RFC 3339 in UTC for times. Comparison is
// case-sensitive. An attribute that an event does not have matches nothing; an
// event that is not of CloudEvents 1.0 has none.
//
// The dialect sql is in package cesql.
package filter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/internal/attribute"
)

// A Filter reports whether it matches an event. The filters of this package
// are safe for concurrent use, and do not allocate for attributes that are
// strings: every one but source, dataschema and time, and extensions that were
// set to something else.
type Filter func(e event.Event) bool

// Exact matches events whose attribute is value. It panics if no CloudEvent can
// have an attribute of the name, or if value is empty.
func Exact(attribute, value string) Filter { return must(compare(attribute, value, equal)) }

// Prefix matches events whose attribute begins with value. It panics as [Exact]
// does.
func Prefix(attribute, value string) Filter {
	return must(compare(attribute, value, strings.HasPrefix))
}

// Suffix matches events whose attribute ends with value. It panics as [Exact]
// does.
func Suffix(attribute, value string) Filter {
	return must(compare(attribute, value, strings.HasSuffix))
}

// All matches events that every one of the filters matches. It panics if there
// are none, or one is nil.
func All(filters ...Filter) Filter {
	filters = some("All", filters)
	return func(e event.Event) bool {
		for _, f := range filters {
			if !f(e) {
				return false
			}
		}
		return true
	}
}

// Any matches events that one of the filters matches. It panics if there are
// none, or one is nil.
func Any(filters ...Filter) Filter {
	filters = some("Any", filters)
	return func(e event.Event) bool {
		for _, f := range filters {
			if f(e) {
				return true
			}
		}
		return false
	}
}

// Not matches events that f does not match, those without the attribute
// included. It panics if f is nil.
func Not(f Filter) Filter {
	some("Not", []Filter{f})
	return func(e event.Event) bool { return !f(e) }
}

// Where returns a handler that calls h for events that f matches. The others are
// acked without being handled: for this subscription they are done with. Where
// panics if h or f is nil.
func Where(h messaging.Handler, f Filter) messaging.Handler {
	if h == nil {
		panic("filter: Where: the handler is nil")
	}
	some("Where", []Filter{f})
	return func(ctx context.Context, e event.Event) error {
		if !f(e) {
			return nil
		}
		return h(ctx, e)
	}
}

// comparisons are the dialects that compare attributes.
var comparisons = map[string]func(have, want string) bool{
	"exact":  equal,
	"prefix": strings.HasPrefix,
	"suffix": strings.HasSuffix,
}

func equal(have, want string) bool { return have == want }

func compare(name, value string, matches func(have, want string) bool) (Filter, error) {
	if err := attribute.Check(name); err != nil {
		return nil, fmt.Errorf("attribute %.64q: %w", name, err)
	}
	if value == "" {
		return nil, fmt.Errorf("attribute %.64q: %w", name, errEmpty)
	}
	return func(e event.Event) bool {
		have, _, ok := attribute.Lookup(e, name)
		return ok && matches(have, value)
	}, nil
}

var errEmpty = errors.New("the value to compare with is empty")

func must(f Filter, err error) Filter {
	if err != nil {
		panic("filter: " + err.Error())
	}
	return f
}

// some returns a copy of the filters, and panics if there are none or one is nil.
func some(name string, filters []Filter) []Filter {
	if len(filters) == 0 {
		panic(fmt.Sprintf("filter: %s: there is no filter", name))
	}
	for _, f := range filters {
		if f == nil {
			panic(fmt.Sprintf("filter: %s: a filter is nil", name))
		}
	}
	return slices.Clone(filters)
}
