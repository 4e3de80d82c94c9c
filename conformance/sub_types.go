package conformance

import (
	"slices"
	"strings"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// matches are patterns, and which of the types they match.
var matches = []struct {
	patterns []string
	types    []string
}{
	{nil, []string{"order", "orders", "Order", "order.created", "order.created.eu", "order.Created", "orde", "invoice.created", "a.b.c.d"}},
	{[]string{"order"}, []string{"order"}},
	{[]string{"order.created"}, []string{"order.created"}},
	{[]string{"*"}, []string{"order", "orders", "Order", "orde"}},
	{[]string{"order.*"}, []string{"order.created", "order.Created"}},
	{[]string{"*.created"}, []string{"order.created", "invoice.created"}},
	{[]string{"*.*"}, []string{"order.created", "order.Created", "invoice.created"}},
	{[]string{"order.>"}, []string{"order.created", "order.created.eu", "order.Created"}},
	{[]string{"*.created.*"}, []string{"order.created.eu"}},
	{[]string{"*.created.>"}, []string{"order.created.eu"}},
	{[]string{"a.*.c.>"}, []string{"a.b.c.d"}},
	{[]string{"a.b.>"}, []string{"a.b.c.d"}},
	{[]string{"a.b.c.d.>"}, nil},
	{[]string{">"}, []string{"order", "orders", "Order", "order.created", "order.created.eu", "order.Created", "orde", "invoice.created", "a.b.c.d"}},
	{[]string{"order.>", "order.created", "*.created", "*.*"}, []string{"order.created", "order.created.eu", "order.Created", "invoice.created"}},
	{[]string{"order", ">"}, []string{"order", "orders", "Order", "order.created", "order.created.eu", "order.Created", "orde", "invoice.created", "a.b.c.d"}},
	{[]string{"orders", "invoice.created"}, []string{"orders", "invoice.created"}},
	{[]string{"nothing"}, nil},
}

func sub8Match(e *env) {
	b := e.open()
	var events []event.Event
	for _, typ := range matches[0].types {
		events = append(events, e.event(typ))
	}
	end := e.event("end.of.the.types")
	e.publish(b, append(slices.Clone(events), end)...)
	for _, m := range matches {
		patterns := m.patterns
		if patterns != nil {
			patterns = append(slices.Clone(patterns), end.Type())
		}
		src := e.subscribe(b, e.sub(patterns...))
		e.given("with Types %q", patterns)
		for _, ev := range events {
			if slices.Contains(m.types, ev.Type()) {
				e.accept(src, ev)
			}
		}
		e.accept(src, end)
		e.closing(src)
	}
}

// Types that look like patterns are data: they are matched by patterns that
// match them, and by no others.
func sub8Strange(e *env) {
	b := e.open()
	var events []event.Event
	for _, typ := range strangeTypes {
		events = append(events, e.event(typ))
	}
	end := e.event("end.of.the.types")
	e.publish(b, append(slices.Clone(events), end)...)
	for _, patterns := range [][]string{
		{"*"}, {"*.*"}, {"a.*"}, {"*.a"}, {"a.>"}, {"*.*.*"}, {"a.*.b"}, {"$JS.>"}, {"$JS.API.STREAM.DELETE.x"}, {"$SYS.*"}, {"%"}, {"%2A"},
		{"100%"}, {"a b"}, {" a "}, {"ünï.*"}, {"*.cödé"}, {"日本.語"}, {"a.b"}, {"A.b"}, {"a#"}, {"#"}, {`a\b`}, {"a:b", "a,b"}, {"2A"}, {"_INBOX.>"},
	} {
		src := e.subscribe(b, e.sub(append(slices.Clone(patterns), end.Type())...))
		e.given("with Types %q and the last event's", patterns)
		for _, ev := range events {
			if slices.ContainsFunc(patterns, func(p string) bool { return matchTokens(strings.Split(p, "."), strings.Split(ev.Type(), ".")) }) {
				e.accept(src, ev)
			}
		}
		e.accept(src, end)
		e.closing(src)
	}
}

// matchTokens is SUB-8's matching in its own words; package event is under
// test, too.
func matchTokens(pattern, typ []string) bool {
	for i, p := range pattern {
		switch {
		case p == ">":
			return len(typ) > i
		case i >= len(typ), p != "*" && p != typ[i]:
			return false
		}
	}
	return len(pattern) == len(typ)
}

func sub8Malformed(e *env) {
	b := e.open()
	for _, pattern := range []string{
		"", ".", "a.", ".a", "a..b", ">.a", "a.>.b", "a>", ">a", "a*", "*a", "a*b", "a.b*", "**", ">>", "*>", "a.*b.c", "a.b>",
	} {
		e.refused(b, e.sub(pattern), messaging.ErrInvalid)
		e.refused(b, e.sub("a", pattern, "b"), messaging.ErrInvalid)
	}
}
