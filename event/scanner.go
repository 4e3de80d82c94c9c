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
	s.i = skipSpace(s.b, s.i)
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
	return s.moved(skipValue(s.b, s.i))
}

// string moves over a string and returns it with its quotes and escapes.
func (s *scanner) string() (quoted []byte, ok bool) {
	start := s.i
	if start == len(s.b) || s.b[start] != '"' || !s.moved(skipString(s.b, start+1)) {
		return nil, false
	}
	return s.b[start:s.i], true
}

// moved moves to where a skip has come to, if it came anywhere.
func (s *scanner) moved(to int) bool {
	if to >= 0 {
		s.i = to
	}
	return to >= 0
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
