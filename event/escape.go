package event

import (
	"strings"
	"unicode/utf8"
)

// The percent-encoding of attribute values in headers, which the HTTP binding
// (section 3.1.3.2) and the NATS binding (same section) share.

func escapedLen(s string) int {
	_, escapes := classify(s)
	return len(s) + 2*escapes
}

func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	start := 0
	for i := range len(s) {
		if c := s[i]; classes[c]&escaped != 0 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, '%', hex[c>>4], hex[c&0xf])
			start = i + 1
		}
	}
	return append(dst, s[start:]...)
}

// unescape undoes what a sender may have done to a value: it takes off the double
// quotes with their backslashes, decodes once, and refuses what is then not UTF-8.
// A percent sign without two hexadecimal digits, or a quoted string that is not
// well formed, stands for itself: senders that do not encode write such values.
func unescape(s string) (string, error) {
	s = unquote(s)
	if strings.IndexByte(s, '%') >= 0 {
		b := make([]byte, 0, len(s))
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) {
				hi, lo := unhex(s[i+1]), unhex(s[i+2])
				if hi|lo < 16 {
					b = append(b, hi<<4|lo)
					i += 2
					continue
				}
			}
			b = append(b, s[i])
		}
		s = string(b)
	}
	if !utf8.ValidString(s) {
		return "", errUTF8
	}
	return s, nil
}

// unquote returns the content of a quoted string, or s when it is none.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	body := s[1 : len(s)-1]
	if strings.IndexByte(body, '\\') < 0 && strings.IndexByte(body, '"') < 0 {
		return body
	}
	b := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			return s
		case '\\':
			if i++; i == len(body) {
				return s // the backslash escapes the closing quote
			}
		}
		b = append(b, body[i])
	}
	return string(b)
}

// unhex returns the value of a hexadecimal digit, or 255.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
