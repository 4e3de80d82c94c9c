package event

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may nest, as in encoding/json.
const maxDepth = 10000

// scanner walks over JSON text without decoding it. It is some times faster than
// [json.Valid], and tells where a value ends. It does not look at whether strings
// are UTF-8.
type scanner struct {
	b []byte
	i int // next byte
}

// validJSON reports whether b is JSON as RFC 8259 defines it for interchange: what
// [json.Valid] says, and in UTF-8.
func validJSON(b []byte) bool {
	s := scanner{b: b}
	s.space()
	if !s.value() {
		return false
	}
	s.space()
	return s.i == len(b) && utf8.Valid(b)
}

// isObject reports whether b begins as a JSON object does.
func isObject(b []byte) bool {
	s := scanner{b: b}
	s.space()
	return s.take('{')
}

func (s *scanner) fail(problem string) error {
	return fmt.Errorf("event: JSON: at byte %d: %s", s.i, problem)
}

func (s *scanner) space() {
	for s.i < len(s.b) && isSpace(s.b[s.i]) {
		s.i++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// value moves over one value.
func (s *scanner) value() bool {
	if s.i < len(s.b) && (s.b[s.i] == '{' || s.b[s.i] == '[') {
		return s.composite()
	}
	return s.scalar()
}

// composite moves over an object or an array. Nesting is kept as a bit for each
// level, set for an object, rather than as recursion, so that deep input costs no
// stack.
func (s *scanner) composite() bool {
	var isObject [(maxDepth + 63) / 64]uint64
	depth := 0
	for {
		// A value begins here.
		switch {
		case s.take('{'), s.take('['):
			object := s.b[s.i-1] == '{'
			if depth == maxDepth {
				return false
			}
			s.space()
			if object && s.take('}') || !object && s.take(']') {
				break
			}
			if object {
				isObject[depth/64] |= 1 << (depth % 64)
				if !s.key() {
					return false
				}
			} else {
				isObject[depth/64] &^= 1 << (depth % 64)
			}
			depth++
			continue
		default:
			if !s.scalar() {
				return false
			}
		}

		// A value ended. Close what ends with it, up to where the next one begins.
		for more := false; !more; {
			if depth == 0 {
				return true
			}
			s.space()
			object := isObject[(depth-1)/64]&(1<<((depth-1)%64)) != 0
			switch {
			case s.take(','):
				s.space()
				if object && !s.key() {
					return false
				}
				more = true
			case object && s.take('}'), !object && s.take(']'):
				depth--
			default:
				return false
			}
		}
	}
}

// key moves over a member's name, the colon, and space.
func (s *scanner) key() bool {
	if _, ok := s.string(); !ok {
		return false
	}
	s.space()
	if !s.take(':') {
		return false
	}
	s.space()
	return true
}

func (s *scanner) scalar() bool {
	if s.i == len(s.b) {
		return false
	}
	switch s.b[s.i] {
	case '"':
		_, ok := s.string()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.number()
}

func (s *scanner) literal(word string) bool {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return false
	}
	s.i += len(word)
	return true
}

func (s *scanner) number() bool {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') && !s.digits() {
		return false
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

// string moves over a string and returns it with its quotes and escapes.
func (s *scanner) string() (quoted []byte, ok bool) {
	start := s.i
	if !s.take('"') {
		return nil, false
	}
	for {
		i := s.i
		for i < len(s.b) && s.b[i] >= ' ' && s.b[i] != '"' && s.b[i] != '\\' {
			i++
		}
		s.i = i
		if s.take('"') {
			return s.b[start:s.i], true
		}
		if !s.take('\\') || !s.escape() {
			return nil, false
		}
	}
}

// escape moves over what follows a backslash.
func (s *scanner) escape() bool {
	if s.i == len(s.b) {
		return false
	}
	c := s.b[s.i]
	s.i++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			if s.i == len(s.b) || unhex(s.b[s.i]) > 15 {
				return false
			}
			s.i++
		}
		return true
	}
	return false
}

var errSurrogate = errors.New("a string escapes half a surrogate pair")

// unquoteJSON returns the content of a string that the scanner has moved over. It
// is part of quoted when there is nothing to unescape.
func unquoteJSON(quoted []byte) ([]byte, error) {
	s := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(s[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				if len(s)-i < len(`\udc00`)+1 || s[i+1] != '\\' || s[i+2] != 'u' {
					return nil, errSurrogate
				}
				if r = utf16.DecodeRune(r, hex4(s[i+3:])); r == utf8.RuneError {
					return nil, errSurrogate
				}
				i += len(`\udc00`)
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, s[i])
		}
	}
	return out, nil
}

// hex4 returns the number that the first four hexadecimal digits of s write.
func hex4(s []byte) rune {
	var r rune
	for _, c := range s[:4] {
		r = r<<4 | rune(unhex(c))
	}
	return r
}
