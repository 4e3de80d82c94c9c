package event

// Cases are folded for ASCII only. To package strings the Kelvin sign is a k, which
// would let a header pass for one that it is not.

func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	if a == b {
		return true
	}
	for i := range len(a) {
		if lowerByte(a[i]) != lowerByte(b[i]) {
			return false
		}
	}
	return true
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && equalFold(s[:len(prefix)], prefix)
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && equalFold(s[len(s)-len(suffix):], suffix)
}

// lower returns s in lower case, and s itself if it is that already.
func lower(s string) string {
	for i := range len(s) {
		if lowerByte(s[i]) != s[i] {
			b := []byte(s)
			for i := range b {
				b[i] = lowerByte(b[i])
			}
			return string(b)
		}
	}
	return s
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
