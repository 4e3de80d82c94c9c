package database

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxIndexed is how much of text is put in an index: PostgreSQL takes rows of up
// to 2704 bytes there.
const maxIndexed = 1024

// Identity returns source and id as an index takes them: long ones as a hash.
func Identity(source, id string) (string, string) {
	if len(source)+len(id) <= maxIndexed {
		return source, id
	}
	return "sha256", digest(source + "\x00" + id)
}

// Key is Identity for one string.
func Key(key string) string {
	if len(key) <= maxIndexed {
		return key
	}
	return "sha256 " + digest(key)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
