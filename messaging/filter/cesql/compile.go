package cesql

import (
	"strconv"
	"strings"

	"github.com/antlr/antlr4/runtime/Go/antlr"
	"github.com/cloudevents/sdk-go/sql/v2/gen"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/internal/attribute"
)

// A node is a compiled expression. It does not change: what evaluation needs is
// on the stack.
type node struct {
	kind attribute.Kind // of the value, or anyKind

	// eval returns the value, and reports false where the specification has an
	// error. Then the event does not match, and the value is of no use.
	eval func(e event.Event) (value, bool)
}

func constant(v value) node {
	return node{v.kind, func(event.Event) (value, bool) { return v, true }}
}

// as evaluates n and casts the value.
func (n node) as(kind attribute.Kind, e event.Event) (value, bool) {
	v, ok := n.eval(e)
	if !ok {
		return v, false
	}
	return v.cast(kind)
}

// A compiler makes nodes of a tree that was parsed without errors.
type compiler struct {
	err error // the first
}

// refuse notes what is wrong with a part of the tree.
func (c *compiler) refuse(at antlr.ParserRuleContext, format string, args ...any) node {
	if c.err == nil {
		c.err = wrong(at, format, args...)
	}
	return node{}
}

func (c *compiler) compile(tree antlr.Tree) node {
	switch t := tree.(type) {
	case *gen.SubExpressionContext:
		return c.compile(t.Expression())
	case *gen.AtomExpressionContext:
		return c.compile(t.Atom())
	case *gen.BooleanAtomContext:
		return constant(boolean(strings.EqualFold(t.GetText(), "true")))
	case *gen.IntegerAtomContext:
		n, err := strconv.ParseInt(t.GetText(), 10, 32)
		if err != nil {
			return c.refuse(t, "%.32s is out of range: an integer has 32 bits", t.GetText())
		}
		return constant(number(int32(n)))
	case *gen.StringAtomContext:
		return constant(text(c.literal(t)))
	case *gen.IdentifierAtomContext:
		name := c.identifier(t)
		return node{anyKind, func(e event.Event) (value, bool) { return lookup(e, name) }}
	case *gen.ExistsExpressionContext:
		name := c.identifier(t.Identifier().(*gen.IdentifierContext))
		return node{flag, func(e event.Event) (value, bool) { _, ok := lookup(e, name); return boolean(ok), true }}
	case *gen.UnaryLogicExpressionContext:
		return not(c.compile(t.Expression()))
	case *gen.UnaryNumericExpressionContext:
		x := c.compile(t.Expression())
		return node{num, func(e event.Event) (value, bool) {
			v, ok := x.as(num, e)
			n, fits := integer(-int64(v.number))
			return n, ok && fits
		}}
	case *gen.BinaryMultiplicativeExpressionContext:
		return c.arithmetic(t)
	case *gen.BinaryAdditiveExpressionContext:
		return c.arithmetic(t)
	case *gen.BinaryComparisonExpressionContext:
		return c.comparison(t)
	case *gen.BinaryLogicExpressionContext:
		return c.logic(t)
	case *gen.LikeExpressionContext:
		return c.like(t)
	case *gen.InExpressionContext:
		return c.in(t)
	case *gen.FunctionInvocationExpressionContext:
		return c.call(t)
	}
	panic("cesql: the grammar has an expression that the package does not know")
}

// literal returns the text of a string literal.
func (c *compiler) literal(t antlr.ParserRuleContext) string {
	s, ok := unquote(t.GetText())
	if !ok {
		c.refuse(t, "a quote in a string is escaped by a backslash, not doubled")
	}
	return s
}

// identifier returns the name of an attribute, which is in lower case whatever
// case the expression has it in.
func (c *compiler) identifier(t antlr.ParserRuleContext) string {
	name := strings.ToLower(t.GetText())
	if err := attribute.Check(name); err != nil {
		c.refuse(t, "attribute %.64q: %v", name, err)
	}
	return name
}

// operand compiles the left side of an operator that NOT binds tighter than.
func (c *compiler) operand(t antlr.Tree) node {
	if n, ok := t.(*gen.UnaryLogicExpressionContext); ok {
		return c.refuse(n, "NOT comes before the operator behind it, unlike in SQL: write (NOT x) or NOT (x …)")
	}
	return c.compile(t)
}

// operator returns the type of the token between two operands.
func operator(t antlr.Tree) int {
	return t.GetChild(1).(antlr.TerminalNode).GetSymbol().GetTokenType()
}

func not(x node) node {
	return node{flag, func(e event.Event) (value, bool) {
		v, ok := x.as(flag, e)
		return boolean(!v.boolean), ok
	}}
}

func (c *compiler) arithmetic(t antlr.Tree) node {
	x, y := c.operand(t.GetChild(0)), c.compile(t.GetChild(2))
	op := operator(t)
	return node{num, func(e event.Event) (value, bool) {
		v, ok := x.as(num, e)
		if !ok {
			return v, false
		}
		w, ok := y.as(num, e)
		if !ok {
			return w, false
		}
		a, b := int64(v.number), int64(w.number)
		switch op {
		case gen.CESQLParserParserPLUS:
			return integer(a + b)
		case gen.CESQLParserParserMINUS:
			return integer(a - b)
		case gen.CESQLParserParserSTAR:
			return integer(a * b)
		}
		if b == 0 {
			return number(0), false
		}
		if op == gen.CESQLParserParserDIVIDE {
			return integer(a / b)
		}
		return integer(a % b)
	}}
}

func (c *compiler) comparison(t antlr.Tree) node {
	x, y := c.operand(t.GetChild(0)), c.compile(t.GetChild(2))
	var compare func(a, b int32) bool
	switch operator(t) {
	case gen.CESQLParserParserEQUAL:
		return equality(x, y)
	case gen.CESQLParserParserNOT_EQUAL, gen.CESQLParserParserLESS_GREATER:
		return not(equality(x, y))
	case gen.CESQLParserParserLESS:
		compare = func(a, b int32) bool { return a < b }
	case gen.CESQLParserParserLESS_OR_EQUAL:
		compare = func(a, b int32) bool { return a <= b }
	case gen.CESQLParserParserGREATER:
		compare = func(a, b int32) bool { return a > b }
	case gen.CESQLParserParserGREATER_OR_EQUAL:
		compare = func(a, b int32) bool { return a >= b }
	}
	return node{flag, func(e event.Event) (value, bool) {
		v, ok := x.as(num, e)
		if !ok {
			return v, false
		}
		w, ok := y.as(num, e)
		return boolean(ok && compare(v.number, w.number)), ok
	}}
}

// equality casts its left side to what its right side is.
func equality(x, y node) node {
	return node{flag, func(e event.Event) (value, bool) {
		v, ok := x.eval(e)
		if !ok {
			return v, false
		}
		w, ok := y.eval(e)
		if !ok {
			return w, false
		}
		v, ok = v.cast(w.kind)
		return boolean(v == w), ok
	}}
}

func (c *compiler) logic(t *gen.BinaryLogicExpressionContext) node {
	op := operator(t)
	for _, x := range t.AllExpression() {
		if inner, ok := x.(*gen.BinaryLogicExpressionContext); ok && operator(inner) != op {
			return c.refuse(t, "AND, OR and XOR next to each other have no order that all agree on: parentheses are required")
		}
	}
	x, y := c.compile(t.Expression(0)), c.compile(t.Expression(1))
	return node{flag, func(e event.Event) (value, bool) {
		v, ok := x.as(flag, e)
		if !ok {
			return v, false
		}
		if op == gen.CESQLParserParserAND && !v.boolean || op == gen.CESQLParserParserOR && v.boolean {
			return v, true
		}
		w, ok := y.as(flag, e)
		if op == gen.CESQLParserParserXOR {
			w.boolean = w.boolean != v.boolean
		}
		return w, ok
	}}
}

func (c *compiler) like(t *gen.LikeExpressionContext) node {
	x := c.operand(t.Expression())
	pattern := newLike(c.literal(t.StringLiteral().(*gen.StringLiteralContext)))
	like := node{flag, func(e event.Event) (value, bool) {
		v, ok := x.as(str, e)
		return boolean(ok && pattern.match(v.text)), ok
	}}
	if t.NOT() != nil {
		return not(like)
	}
	return like
}

// in casts the elements of the set to what the left side is.
func (c *compiler) in(t *gen.InExpressionContext) node {
	x := c.operand(t.Expression())
	var set []node
	for _, y := range t.SetExpression().(*gen.SetExpressionContext).AllExpression() {
		set = append(set, c.compile(y))
	}
	in := node{flag, func(e event.Event) (value, bool) {
		v, ok := x.eval(e)
		if !ok {
			return v, false
		}
		found := false
		for _, y := range set {
			w, ok := y.as(v.kind, e)
			if !ok {
				return w, false
			}
			found = found || v == w
		}
		return boolean(found), true
	}}
	if t.NOT() != nil {
		return not(in)
	}
	return in
}

func (c *compiler) call(t *gen.FunctionInvocationExpressionContext) node {
	var params []node
	for _, x := range t.FunctionParameterList().(*gen.FunctionParameterListContext).AllExpression() {
		params = append(params, c.compile(x))
	}
	name := t.FunctionIdentifier().(*gen.FunctionIdentifierContext).GetText()
	f, ok := functionOf(name, len(params))
	if !ok {
		return c.refuse(t, "there is no function %.64s with %d arguments", name, len(params))
	}
	return node{f.result, func(e event.Event) (value, bool) {
		args := make([]value, len(params))
		for i, x := range params {
			var ok bool
			if args[i], ok = x.as(f.param(i), e); !ok {
				return value{}, false
			}
		}
		return f.call(args)
	}}
}
