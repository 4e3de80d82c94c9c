package database

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// maxIndexed is how much of text is put in an index: PostgreSQL takes rows of up
// to 2704 bytes there.
const maxIndexed = 1024

// Identity returns source and id as an index takes them: long ones as a hash. What
// others published may have NUL or invalid UTF-8 [RCV-5], which PostgreSQL has no
// text for: such ones are a hash each, as a NUL in between would not tell where
// one of them ends.
func Identity(source, id string) (string, string) {
	switch {
	case !isText(source) || !isText(id):
		return "sha256 " + digest(source), digest(id)
	case len(source)+len(id) > maxIndexed:
		return "sha256", digest(source + "\x00" + id)
	}
	return source, id
}

// Key is Identity for one string.
func Key(key string) string {
	if len(key) <= maxIndexed && isText(key) {
		return key
	}
	return "sha256 " + digest(key)
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
