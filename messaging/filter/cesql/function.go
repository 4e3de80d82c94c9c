package cesql

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/catchment-events/catchment/messaging/internal/attribute"
)

// A function is one that expressions may call. It is given values of the kinds
// of its parameters, and reports false where the specification has an error.
type function struct {
	name   string
	params []attribute.Kind
	rest   bool // any number of Strings behind the params
	result attribute.Kind
	call   func(args []value) (value, bool)
}

var functions = []function{
	{"INT", []attribute.Kind{anyKind}, false, num, func(a []value) (value, bool) { return a[0].cast(num) }},
	{"BOOL", []attribute.Kind{anyKind}, false, flag, func(a []value) (value, bool) { return a[0].cast(flag) }},
	{"STRING", []attribute.Kind{anyKind}, false, str, func(a []value) (value, bool) { return a[0].cast(str) }},
	{"IS_INT", []attribute.Kind{anyKind}, false, flag, func(a []value) (value, bool) { return castable(a[0], num), true }},
	{"IS_BOOL", []attribute.Kind{anyKind}, false, flag, func(a []value) (value, bool) { return castable(a[0], flag), true }},
	{"LENGTH", []attribute.Kind{str}, false, num, func(a []value) (value, bool) { return integer(int64(utf8.RuneCountInString(a[0].text))) }},
	{"LOWER", []attribute.Kind{str}, false, str, func(a []value) (value, bool) { return text(strings.ToLower(a[0].text)), true }},
	{"UPPER", []attribute.Kind{str}, false, str, func(a []value) (value, bool) { return text(strings.ToUpper(a[0].text)), true }},
	{"TRIM", []attribute.Kind{str}, false, str, func(a []value) (value, bool) { return text(strings.TrimSpace(a[0].text)), true }},
	{"CONCAT", nil, true, str, func(a []value) (value, bool) { return join("", a), true }},
	{"CONCAT_WS", []attribute.Kind{str}, true, str, func(a []value) (value, bool) { return join(a[0].text, a[1:]), true }},
	{"LEFT", []attribute.Kind{str, num}, false, str, left},
	{"RIGHT", []attribute.Kind{str, num}, false, str, right},
	{"SUBSTRING", []attribute.Kind{str, num}, false, str, substring},
	{"SUBSTRING", []attribute.Kind{str, num, num}, false, str, substring},
	{"ABS", []attribute.Kind{num}, false, num, func(a []value) (value, bool) { return integer(max(int64(a[0].number), -int64(a[0].number))) }},
}

// functionOf returns the function of the name that takes so many arguments.
func functionOf(name string, args int) (f function, ok bool) {
	name = strings.ToUpper(name)
	for _, f := range functions {
		if f.name == name && (args == len(f.params) || f.rest && args > len(f.params)) {
			return f, true
		}
	}
	return function{}, false
}

// param returns the kind of the i-th parameter.
func (f *function) param(i int) attribute.Kind {
	if i < len(f.params) {
		return f.params[i]
	}
	return str
}

func castable(v value, kind attribute.Kind) value {
	_, ok := v.cast(kind)
	return boolean(ok)
}

func join(delimiter string, args []value) value {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteString(delimiter)
		}
		b.WriteString(a.text)
	}
	return text(b.String())
}

func left(a []value) (value, bool) {
	s, n := a[0].text, int(a[1].number)
	return text(s[:offset(s, n)]), n >= 0
}

func right(a []value) (value, bool) {
	s, n := a[0].text, int(a[1].number)
	return text(s[offset(s, utf8.RuneCountInString(s)-n):]), n >= 0
}

// substring counts from 1, or backwards from -1. Nothing is at 0.
func substring(a []value) (value, bool) {
	s, pos, n := a[0].text, int(a[1].number), math.MaxInt32
	if len(a) > 2 {
		n = int(a[2].number)
	}
	length := utf8.RuneCountInString(s)
	switch {
	case n < 0, pos > length, pos < -length:
		return text(""), false
	case pos == 0:
		return text(""), true
	case pos < 0:
		pos += length + 1
	}
	s = s[offset(s, pos-1):]
	return text(s[:offset(s, n)]), true
}

// offset returns where the first n characters of s end, which is its end if it
// has no more.
func offset(s string, n int) int {
	for i := range s {
		if n <= 0 {
			return i
		}
		n--
	}
	return len(s)
}
