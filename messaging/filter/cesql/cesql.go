// Package cesql makes filters of CloudEvents SQL expressions, version 1.0:
//
//	type LIKE 'order.%' AND (tenant = 'acme' OR INT(priority) > 5)
//
// The grammar is that of the CloudEvents SDK; what expressions mean is written
// here, by the specification. The package is one of its own because it links a
// parser that package filter does without.
//
// # Evaluation
//
// As the specification says of filters, an event matches if the result is true
// and there was no error: an attribute that the event does not have is an error,
// and so are a cast that fails, a division by zero, a number that leaves the
// range of int32, and an argument that a function refuses. EXISTS asks for an
// attribute without that. AND and OR leave out their right side when the left
// one decides, and with it its errors; nothing else is left out, so that an IN
// does not depend on the order of its set.
//
// Booleans and integers are what they were set to; every other attribute is a
// string, in the form that package filter describes. Characters are those of
// Unicode: they are what _ stands for in LIKE, and what LENGTH, LEFT, RIGHT and
// SUBSTRING count.
//
// # Refused expressions
//
// Two orders of precedence surprise those who know SQL, and implementations
// differ in them, so parentheses are required: around AND, OR and XOR next to
// another of them (CESQL gives all three the same precedence), and around NOT
// in front of arithmetic, a comparison, LIKE or IN, which it binds tighter than.
//
// Refused are also a result that is no boolean, such as a lone attribute, which
// BOOL casts; functions that there are not; names that no attribute can have;
// quotes that are doubled instead of escaped by a backslash; and 4 -1, which
// the grammar takes for two numbers, for 4 - 1.
//
// There are the functions of the specification, and INT, BOOL, STRING, IS_INT
// and IS_BOOL.
package cesql

import (
	"fmt"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/filter"
	"github.com/catchment-events/catchment/messaging/internal/attribute"
)

// MaxLength is the length of the longest expression, in bytes. It bounds what
// the worst of them take to be refused, which grows with the square.
const MaxLength = 4 << 10

// Compile returns the filter of an expression, or an error that says what is
// wrong with it and where. Compile it once: that takes a thousand times as long
// as a match. The filter is safe for concurrent use.
func Compile(expression string) (filter.Filter, error) {
	tree, err := parse(expression)
	if err != nil {
		return nil, fmt.Errorf("cesql: %w", err)
	}
	var c compiler
	root := c.compile(tree)
	if c.err == nil && root.kind != attribute.Boolean {
		c.refuse(tree, "the result is %s, must be a boolean: BOOL casts", kindName(root.kind))
	}
	if c.err != nil {
		return nil, fmt.Errorf("cesql: %w", c.err)
	}
	return func(e event.Event) bool {
		v, ok := root.eval(e)
		return ok && v.boolean
	}, nil
}

// MustCompile is Compile for expressions that are known to be right. It panics
// if they are not.
func MustCompile(expression string) filter.Filter {
	f, err := Compile(expression)
	if err != nil {
		panic(err)
	}
	return f
}
