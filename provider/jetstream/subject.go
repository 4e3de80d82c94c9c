package jetstream

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
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
	b := make([]byte, 0, len(prefix)+1+len(typ)+16)
	b = append(b, prefix...)
	for token := range strings.SplitSeq(typ, ".") {
		b = appendToken(append(b, '.'), token)
	}
	return string(b)
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
func messageID(source, id string) string {
	h := sha256.New()
	h.Write([]byte(source))
	h.Write([]byte{0})
	h.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(h.Sum(make([]byte, 0, sha256.Size))[:24])
}
