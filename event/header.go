package event

import (
	"errors"
	"fmt"
	"strings"
)

// headers collects headers for Encode. Its methods return the changed value, which
// lets the buffers stay on the caller's stack.
type headers struct {
	binding Binding
	text    []byte
	ends    []int // of each name and each value in text
	err     error
}

func (w headers) name(attribute string) headers {
	w.text = append(w.text, w.binding.Prefix...)
	w.text = append(w.text, attribute...)
	return w.end()
}

// end ends a name or a value.
func (w headers) end() headers {
	w.ends = append(w.ends, len(w.text))
	return w
}

func (w headers) value(s string) headers {
	if !w.binding.Percent {
		return w.plain(s)
	}
	w.text = appendEscaped(w.text, s)
	return w.end()
}

// plain writes a value that is not percent-encoded.
func (w headers) plain(s string) headers {
	if err := checkText(s); err != nil && w.err == nil {
		w.err = fmt.Errorf("event: header %s: the value %w", w.last(), err)
	}
	w.text = append(w.text, s...)
	return w.end()
}

// last returns the name that has just been written.
func (w headers) last() string {
	start := 0
	if len(w.ends) > 1 {
		start = w.ends[len(w.ends)-2]
	}
	return quote(string(w.text[start:]))
}

func (w headers) contentType(s string) headers {
	if w.binding.ContentType == "" {
		return w.name("datacontenttype").value(s)
	}
	// A receiver would take the message for structured mode.
	if w.err == nil && hasPrefixFold(strings.TrimSpace(s), anyFormat) {
		w.err = invalid("datacontenttype", "%s cannot be told from structured mode: %w", quote(s), errors.ErrUnsupported)
	}
	w.text = append(w.text, w.binding.ContentType...)
	return w.end().plain(s)
}

func (w headers) flush(header map[string][]string) {
	text := string(w.text)
	values := make([]string, len(w.ends)/2)
	start := 0
	for i := range values {
		name, end := w.ends[2*i], w.ends[2*i+1]
		values[i] = text[name:end]
		header[text[start:name]] = values[i : i+1 : i+1]
		start = end
	}
}
