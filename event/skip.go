package event

// The functions of this file take text and where something begins in it, and return where
// that ends, or -1 if it is not well formed. They are the loops that nearly all the
// time of a check goes into: an index that is no field stays in a register.

// skipValue skips one value. Nesting is kept as a bit for each level, set for an
// object, rather than as recursion, so that deep input costs no stack.
func skipValue(b []byte, i int) int {
	var few [1]uint64
	objects := few[:]
	depth := 0
	for {
		// A value begins here.
		switch {
		case i == len(b):
			return -1
		case b[i] == '"':
			i = skipString(b, i+1)
		case b[i] == '{' || b[i] == '[':
			if depth == maxDepth {
				return -1
			}
			object := b[i] == '{'
			i = skipSpace(b, i+1)
			switch {
			case i == len(b):
				return -1
			case b[i] == '}' && object, b[i] == ']' && !object:
				i++ // it is empty
			default:
				if depth/64 == len(objects) {
					objects = append(objects, 0)
				}
				bit := uint64(1) << (depth % 64)
				objects[depth/64] &^= bit
				depth++
				if object {
					objects[(depth-1)/64] |= bit
					if i = skipKey(b, i); i < 0 {
						return -1
					}
				}
				continue
			}
		default:
			i = skipWord(b, i)
		}
		if i < 0 {
			return -1
		}

		// A value ended. Close what ends with it, up to where the next one begins.
		for depth > 0 {
			object := objects[(depth-1)/64]>>((depth-1)%64)&1 != 0
			if i = skipSpace(b, i); i == len(b) {
				return -1
			}
			if c := b[i]; c == ',' {
				i = skipSpace(b, i+1)
				if object {
					i = skipKey(b, i)
				}
				break
			} else if c == '}' && object || c == ']' && !object {
				i++
				depth--
			} else {
				return -1
			}
		}
		if depth == 0 || i < 0 {
			return i
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && isSpace(b[i]) { // few bytes are so low
		i++
	}
	return i
}

// skipKey skips a member's name, the colon, and space.
func skipKey(b []byte, i int) int {
	if i == len(b) || b[i] != '"' {
		return -1
	}
	if i = skipString(b, i+1); i < 0 {
		return -1
	}
	if i = skipSpace(b, i); i == len(b) || b[i] != ':' {
		return -1
	}
	return skipSpace(b, i+1)
}

// skipWord skips a number, or a value that is written as a word.
func skipWord(b []byte, i int) int {
	var word string
	switch b[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	default:
		return skipNumber(b, i)
	}
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = skipDigits(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

// skipDigits skips at least one digit.
func skipDigits(b []byte, i int) int {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// skipString skips a string whose opening quote is skipped already.
func skipString(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case !special[c]:
		case c == '"':
			return i + 1
		case c != '\\':
			return -1 // a control character
		default:
			if i = skipEscape(b, i+1) - 1; i < 0 {
				return -1
			}
		}
	}
	return -1
}

// special are the bytes that do not stand for themselves in a string.
var special = func() (t [256]bool) {
	for c := range byte(' ') {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// skipEscape skips what follows a backslash.
func skipEscape(b []byte, i int) int {
	if i == len(b) {
		return -1
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if len(b)-i < len("u0000") {
			return -1
		}
		for _, c := range b[i+1 : i+5] {
			if unhex(c) > 15 {
				return -1
			}
		}
		return i + len("u0000")
	}
	return -1
}
