package event

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// headers collects headers for Encode. Its methods return the changed value, which
// lets the buffers stay on the caller's stack.
//
// Most names are constants and most values are the event's own strings as they
// stand. Only what is neither is put together, one after the other in text, which
// becomes one string that those headers share.
type headers struct {
	binding Binding
	list    []field
	text    []byte
	err     *error // the first; a pointer for the reason that contentType gives
}

// A field is a header: it has its name and value, or the lengths of what stands for them in text.
type field struct {
	name, value           string
	nameInText, valueText int
}

// attribute begins the header of an attribute.
func (w headers) attribute(index int) headers {
	switch w.binding.Prefix {
	case "ce-":
		w.list = append(w.list, field{name: natsNames[index]})
		return w
	case "":
		w.list = append(w.list, field{name: attributeNames[index]})
		return w
	}
	return w.name(attributeNames[index])
}

var natsNames = func() (names [len(attributeNames)]string) {
	for i, name := range attributeNames {
		names[i] = "ce-" + name
	}
	return names
}()

// name begins a header.
func (w headers) name(attribute string) headers {
	w.text = append(w.text, w.binding.Prefix...)
	w.text = append(w.text, attribute...)
	w.list = append(w.list, field{nameInText: len(w.binding.Prefix) + len(attribute)})
	return w
}

// last is the header that has been begun.
func (w headers) last() *field { return &w.list[len(w.list)-1] }

// value gives the header its value.
func (w headers) value(s string) headers {
	if !w.binding.Percent {
		return w.plain(s)
	}
	if _, escapes := classify(s); escapes == 0 {
		w.last().value = s
		return w
	}
	return w.textFrom(len(w.text), appendEscaped(w.text, s))
}

// plain gives the header a value that is not percent-encoded.
func (w headers) plain(s string) headers {
	if all, _ := classify(s); all&(control|wide) != 0 && *w.err == nil {
		if err := checkText(s); err != nil {
			name := w.last().name
			if name == "" {
				name = string(w.text[len(w.text)-w.last().nameInText:])
			}
			*w.err = fmt.Errorf("event: header %s: the value %w", quote(name), err)
		}
	}
	w.last().value = s
	return w
}

func (w headers) url(u *url.URL) headers {
	if !plain(u) {
		return w.value(u.String())
	}
	return w.textFrom(len(w.text), appendPlain(w.text, u))
}

func (w headers) time(t time.Time) headers {
	return w.textFrom(len(w.text), appendTime(w.text, t))
}

// textFrom makes what was appended to text since start the header's value.
func (w headers) textFrom(start int, text []byte) headers {
	w.text = text
	w.last().valueText = len(text) - start
	return w
}

// contentType writes datacontenttype. The name of its header is an argument because a
// string taken from w would, for the compiler, take w's buffers to the heap with it.
func (w headers) contentType(name, s string) headers {
	if name == "" {
		return w.attribute(attributeContentType).value(s)
	}
	// A receiver would take the message for structured mode.
	if *w.err == nil && hasPrefixFold(strings.TrimSpace(s), anyFormat) {
		*w.err = invalid("datacontenttype", "%s cannot be told from structured mode: %w", quote(s), errors.ErrUnsupported)
	}
	w.list = append(w.list, field{name: name})
	return w.plain(s)
}

func (w headers) flush(to map[string][]string) {
	text := string(w.text)
	values := make([]string, len(w.list))
	for i := range w.list {
		h := &w.list[i]
		if n := h.nameInText; n > 0 {
			h.name, text = text[:n], text[n:]
		}
		if n := h.valueText; n > 0 {
			h.value, text = text[:n], text[n:]
		}
		values[i] = h.value
		to[h.name] = values[i : i+1 : i+1]
	}
}
