package event

import (
	"fmt"
	"strings"
)

// Pattern selects events by type. The zero Pattern matches every type. A Pattern is
// immutable and safe for concurrent use.
type Pattern struct {
	root *patternNode // nil: every type
}

// patternNode stands for the tokens on the way to it from the root.
type patternNode struct {
	literal map[string]*patternNode
	any     *patternNode // "*"
	rest    bool         // ">"
	end     bool         // a pattern ends here
}

// ParsePattern returns a Pattern that matches the types that any of the patterns
// matches, and every type when there are none.
//
// A pattern is dot-separated tokens; * is any one token, a final > is one or more
// tokens. Matching is exact and case-sensitive: order matches neither
// order.created nor orders. Malformed (empty token, > not last, * or > inside a
// longer token) is an error that names the pattern [SUB-8].
func ParsePattern(patterns ...string) (Pattern, error) {
	if len(patterns) == 0 {
		return Pattern{}, nil
	}
	root := new(patternNode)
	for _, pattern := range patterns {
		if problem := root.add(pattern); problem != "" {
			return Pattern{}, fmt.Errorf("event: pattern %s: %s; a pattern is dot-separated tokens, * is any one token, a final > is one or more tokens",
				quote(pattern), problem)
		}
	}
	return Pattern{root: root}, nil
}

// Match reports whether p matches the type. Any string is a type here, and is
// taken apart at each dot: a..b has an empty token in the middle, which * and >
// match like any other, and a * or > in it is an ordinary character. Match does not
// allocate.
func (p Pattern) Match(typ string) bool {
	return p.root == nil || p.root.match(typ)
}

// match follows typ down the tree. Both ways out of a node may have to be tried,
// but no node can be reached by two ways, so the work is bounded by the tree.
func (n *patternNode) match(typ string) bool {
	if n.rest {
		return true
	}
	token, typ, more := strings.Cut(typ, ".")
	if next := n.literal[token]; next != nil && next.matchRest(typ, more) {
		return true
	}
	return n.any != nil && n.any.matchRest(typ, more)
}

func (n *patternNode) matchRest(typ string, more bool) bool {
	if more {
		return n.match(typ)
	}
	return n.end
}

// add adds a pattern to the tree, or returns what is wrong with it.
func (n *patternNode) add(pattern string) (problem string) {
	for more := true; more; {
		var token string
		token, pattern, more = strings.Cut(pattern, ".")
		switch {
		case token == "":
			return "empty token"
		case token == ">" && more:
			return "> is not last"
		case token == ">":
			n.rest = true
			return ""
		case token == "*":
			if n.any == nil {
				n.any = new(patternNode)
			}
			n = n.any
		case strings.ContainsAny(token, "*>"):
			return "* or > inside a longer token"
		default:
			next := n.literal[token]
			if next == nil {
				next = new(patternNode)
				if n.literal == nil {
					n.literal = make(map[string]*patternNode)
				}
				n.literal[token] = next
			}
			n = next
		}
	}
	n.end = true
	return ""
}
