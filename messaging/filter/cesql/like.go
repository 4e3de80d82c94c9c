package cesql

import "unicode/utf8"

// A like is the pattern of a LIKE, one element for each character of it.
type like []rune

const (
	anyOne  rune = -1 // _
	anyMany rune = -2 // %
)

// newLike takes a pattern apart. A backslash escapes % and _, and stands for
// itself in front of anything else.
func newLike(pattern string) like {
	var l like
	escaped := false
	for _, c := range pattern {
		wildcard := c == '%' || c == '_'
		switch {
		case wildcard && escaped:
			l[len(l)-1] = c
		case c == '%':
			l = append(l, anyMany)
		case c == '_':
			l = append(l, anyOne)
		default:
			l = append(l, c)
		}
		escaped = c == '\\'
	}
	return l
}

// match reports whether the pattern matches all of s. When it fails behind a %,
// that one takes a character more; those before it need not, since what follows
// them matched as early as it could.
func (l like) match(s string) bool {
	rest := l
	var afterMany like // behind the last % that was met, and what it may take more of
	var taken string
	met := false
	for s != "" {
		c, size := utf8.DecodeRuneInString(s)
		valid := c != utf8.RuneError || size > 1
		switch {
		case len(rest) > 0 && rest[0] == anyMany:
			rest = rest[1:]
			afterMany, taken, met = rest, s, true
		case len(rest) > 0 && (rest[0] == anyOne || rest[0] == c && valid):
			rest, s = rest[1:], s[size:]
		case met:
			_, size = utf8.DecodeRuneInString(taken)
			taken = taken[size:]
			rest, s = afterMany, taken
		default:
			return false
		}
	}
	for len(rest) > 0 && rest[0] == anyMany {
		rest = rest[1:]
	}
	return len(rest) == 0
}
