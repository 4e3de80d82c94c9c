package event

// What a byte is to the rules of this package. One look into classes answers all
// of them, which lets the codec go over each value once.
const (
	control    byte = 1 << iota // a control character: no attribute may have it
	escaped                     // written as %XY in a header
	wide                        // part of a character of several bytes
	unreserved                  // stands for itself in every part of a URI (RFC 3986)
	slash                       // /
	colon                       // :
	plus                        // +
	reserved                    // the rest of what a URI may have, % included
)

var classes = func() (t [256]byte) {
	for c := range t {
		switch {
		case c < ' ' || c == 0x7f:
			t[c] = control | escaped
		case c == ' ' || c == '"' || c == '%':
			t[c] = escaped
		case c > 0x7f:
			t[c] = wide | escaped
		}
	}
	for _, c := range []byte("-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] |= unreserved
	}
	t['/'] |= slash
	t[':'] |= colon
	t['+'] |= plus
	for _, c := range []byte("%?#[]@!$&'()*,;=") {
		t[c] |= reserved
	}
	return t
}()

// only reports whether s has only bytes that are in one of the classes.
func only(s string, of byte) bool {
	for i := range len(s) {
		if classes[s[i]]&of == 0 {
			return false
		}
	}
	return true
}

// classify returns the classes of all bytes of s together, and how many of them
// are escaped.
func classify(s string) (all byte, escapes int) {
	for i := range len(s) {
		c := classes[s[i]]
		all |= c
		escapes += int(c & escaped)
	}
	return all, escapes / int(escaped)
}
