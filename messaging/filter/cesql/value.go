package cesql

import (
	"strconv"
	"strings"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/internal/attribute"
)

// A value is what an expression evaluates to.
type value struct {
	kind    attribute.Kind
	text    string // of a String
	number  int32  // of an Integer
	boolean bool   // of a Boolean
}

func text(s string) value  { return value{kind: str, text: s} }
func number(n int32) value { return value{kind: num, number: n} }
func boolean(b bool) value { return value{kind: flag, boolean: b} }

// integer returns n, and reports whether it is in the range of an Integer.
func integer(n int64) (value, bool) { return number(int32(n)), int64(int32(n)) == n }

// The kinds of values.
const (
	str  = attribute.String
	num  = attribute.Integer
	flag = attribute.Boolean

	anyKind attribute.Kind = 0xff // known only when there is an event
)

func kindName(kind attribute.Kind) string {
	switch kind {
	case str:
		return "a string"
	case num:
		return "an integer"
	case flag:
		return "a boolean"
	}
	return "an attribute of any kind"
}

// cast returns v as a value of the kind, and reports whether it can be one.
func (v value) cast(kind attribute.Kind) (value, bool) {
	if v.kind == kind || kind == anyKind {
		return v, true
	}
	switch kind {
	case str:
		if v.kind == num {
			return text(strconv.Itoa(int(v.number))), true
		}
		return text(strconv.FormatBool(v.boolean)), true
	case num:
		if v.kind == flag {
			if v.boolean {
				return number(1), true
			}
			return number(0), true
		}
		n, err := strconv.ParseInt(v.text, 10, 32)
		return number(int32(n)), err == nil
	default:
		if v.kind == num {
			return boolean(v.number != 0), true
		}
		lower := strings.ToLower(v.text)
		return boolean(lower == "true"), lower == "true" || lower == "false"
	}
}

// lookup returns the value of an attribute, and reports whether there is one.
func lookup(e event.Event, name string) (value, bool) {
	s, kind, ok := attribute.Lookup(e, name)
	if !ok {
		return value{}, false
	}
	return text(s).cast(kind)
}
