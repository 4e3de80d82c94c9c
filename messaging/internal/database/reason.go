package database

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reason makes the text of an error fit to be stored: at most limit bytes, valid
// UTF-8, no control characters.
func Reason(s string, limit int) string {
	s = s[:min(len(s), 4*limit)] // bounds the work; replacements only grow it
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > limit {
		s = s[:limit]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}
