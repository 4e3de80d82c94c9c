package cesql

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/antlr/antlr4/runtime/Go/antlr"
	"github.com/cloudevents/sdk-go/sql/v2/gen"
)

// parse returns the tree of an expression. The SDK has a function for that, too,
// but it skips characters that no token begins with, and panics on some errors
// of syntax.
func parse(expression string) (tree gen.IExpressionContext, err error) {
	switch {
	case len(expression) > MaxLength:
		return nil, fmt.Errorf("the expression is %d bytes long, at most %d are allowed", len(expression), MaxLength)
	case !utf8.ValidString(expression):
		return nil, errors.New("the expression is not valid UTF-8")
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case syntaxError:
			tree, err = nil, p
		default:
			panic(p)
		}
	}()
	lexer := gen.NewCESQLParserLexer(upperCase{antlr.NewInputStream(expression)})
	lexer.RemoveErrorListeners()
	lexer.AddErrorListener(&errorListener{})
	parser := gen.NewCESQLParserParser(antlr.NewCommonTokenStream(lexer, antlr.TokenDefaultChannel))
	parser.RemoveErrorListeners()
	parser.AddErrorListener(&errorListener{})
	return parser.Cesql().(*gen.CesqlContext).Expression(), nil
}

// A syntaxError is what the parser stops with, before it tries to go on.
type syntaxError struct {
	line, column int // of the first character: 1 and 1
	problem      string
}

func (e syntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.line, e.column, e.problem)
}

// wrong returns an error about a part of the tree.
func wrong(at antlr.ParserRuleContext, format string, args ...any) error {
	start := at.GetStart()
	return syntaxError{start.GetLine(), start.GetColumn() + 1, fmt.Sprintf(format, args...)}
}

type errorListener struct{ antlr.DefaultErrorListener }

func (*errorListener) SyntaxError(_ antlr.Recognizer, _ any, line, column int, problem string, _ antlr.RecognitionException) {
	panic(syntaxError{line, column + 1, problem})
}

// upperCase makes the grammar see keywords in upper case. Letters outside ASCII
// stay: no keyword, and no name, has any, but some have one as upper case.
type upperCase struct{ antlr.CharStream }

func (s upperCase) LA(offset int) int {
	c := s.CharStream.LA(offset)
	if 'a' <= c && c <= 'z' {
		c += 'A' - 'a'
	}
	return c
}

// unquote returns the text of a string literal. A backslash escapes the quote,
// and nothing else.
func unquote(literal string) (text string, ok bool) {
	quote := literal[0]
	literal = literal[1 : len(literal)-1]
	if strings.IndexByte(literal, quote) < 0 {
		return literal, true
	}
	var b strings.Builder
	for i := 0; i < len(literal); i++ {
		switch c := literal[i]; {
		case c == quote:
			return "", false // doubled
		case c == '\\' && literal[i+1] == quote: // there is one: the literal has an end
			i++
			b.WriteByte(quote)
		case c == '\\' && literal[i+1] == '\\':
			i++
			b.WriteString(`\\`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}
