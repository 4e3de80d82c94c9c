package jetstream

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/catchment-events/catchment/event"
)

// An event's subject is the broker's prefix and the tokens of its type, each
// encoded so that no two types share a subject and none reaches outside the
// prefix [SEC-1]: bytes that mean something to a server, and all that are not
// printable ASCII, become %XX, and an empty token a % alone.

const upperHex = "0123456789ABCDEF"

// plain reports whether c stands for itself in a token.
func plain(c byte) bool {
	switch c {
	case '.', '*', '>', '$', '%':
		return false
	}
	return c > ' ' && c < 0x7F
}

// appendToken appends an encoded token.
func appendToken(b []byte, token string) []byte {
	if token == "" {
		return append(b, '%')
	}
	for i := range len(token) {
		if c := token[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return b
}

// subject returns the subject of events of a type.
func subject(prefix, typ string) string {
	var buf [128]byte
	return string(appendSubject(buf[:0], prefix, typ))
}

// isSubject reports whether s is the subject of events of a type.
func isSubject(s, prefix, typ string) bool {
	var buf [128]byte
	return string(appendSubject(buf[:0], prefix, typ)) == s
}

// appendSubject appends the subject of events of a type.
func appendSubject(b []byte, prefix, typ string) []byte {
	b = append(b, prefix...)
	for more := true; more; {
		var token string
		token, typ, more = strings.Cut(typ, ".")
		b = appendToken(append(b, '.'), token)
	}
	return b
}

// filters returns the subjects that patterns select, which must have passed
// Normalize: none that is part of another, because a server refuses those.
func filters(prefix string, patterns []string) []string {
	if len(patterns) == 0 {
		return []string{prefix + ".>"}
	}
	var out []string
	for _, p := range patterns {
		if slices.ContainsFunc(patterns, func(q string) bool { return p != q && covers(q, p) }) {
			continue
		}
		b := []byte(prefix)
		for token := range strings.SplitSeq(p, ".") {
			b = append(b, '.')
			if token == "*" || token == ">" {
				b = append(b, token...)
			} else {
				b = appendToken(b, token)
			}
		}
		out = append(out, string(b))
	}
	return out
}

// covers reports whether pattern q selects everything that p does.
func covers(q, p string) bool {
	qs, ps := strings.Split(q, "."), strings.Split(p, ".")
	for i, t := range qs {
		switch {
		case t == ">":
			return i < len(ps)
		case i >= len(ps):
			return false
		case t == "*" && ps[i] != ">":
		case t != ps[i]:
			return false
		}
	}
	return len(qs) == len(ps)
}

// messageID is an event's identity for the server's deduplication: a hash, for
// source and id are of any length, and only together unique [PUB-3].
func messageID(e event.Event) string {
	var identity [128]byte
	var id [32]byte
	sum := sha256.Sum256(event.AppendIdentity(identity[:0], e))
	return string(base64.RawURLEncoding.AppendEncode(id[:0], sum[:24]))
}
