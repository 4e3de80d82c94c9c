package event

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

const (
	jsonFormat = "application/cloudevents+json"
	anyFormat  = "application/cloudevents" // what the type of every event format begins with
)

// Decode returns the event of a message. Its data is the body itself, not a copy,
// unless the message is in structured mode. header is only read, but the event
// shares its strings.
//
// Header names match without case. Headers without the prefix are not the event's
// and are ignored. With Percent, values are unquoted and then decoded once; a
// percent sign that two hexadecimal digits do not follow stands for itself.
//
// A message is in structured mode when its Content-Type is
// application/cloudevents+json, in any case and with any parameters, or when it has
// neither a Content-Type nor a specversion and its body is a JSON object. Its
// extensions become strings too. Other event formats and batches are refused.
//
// Decode returns an error for a message that does not parse as an event: a required
// attribute is missing, a name is not an attribute's, an attribute occurs twice (in
// another case, or with a second value), a value is not UTF-8, source, dataschema
// or time does not parse, or specversion is not 1.0. It does not call [Check]: a
// message that parses but breaks EVT-1 is delivered, and nothing panics on any
// input [RCV-5].
func (b Binding) Decode(header map[string][]string, body []byte) (Event, error) {
	d := newBuilder()
	m, err := b.read(&d, header)
	if err != nil {
		return Event{}, err
	}
	switch {
	case m.hasContentType && equalFold(mediaType(m.contentType), jsonFormat):
		return decodeStructured(body)
	case m.hasContentType && hasPrefixFold(mediaType(m.contentType), anyFormat):
		return Event{}, fmt.Errorf("event: content type %s is not supported, the only event format is %s: %w",
			quote(m.contentType), jsonFormat, errors.ErrUnsupported)
	case !m.hasContentType && !m.hasVersion && isObject(body):
		return decodeStructured(body)
	case m.err != nil:
		return Event{}, m.err
	}
	if m.hasContentType && (b.ContentType != "" || d.cell.context.DataContentType == nil) {
		if !utf8.ValidString(m.contentType) {
			return Event{}, invalid("datacontenttype", "%w", errUTF8)
		}
		if err := d.set(attributeContentType, m.contentType); err != nil {
			return Event{}, err
		}
	}
	e, err := d.event(body)
	if err != nil {
		return Event{}, err
	}
	e.DataBase64 = !utf8.Valid(body) // the SDK's JSON encoder would make a string of it
	return e, nil
}

// message is what the headers tell about a message besides its attributes.
type message struct {
	contentType    string
	hasContentType bool
	hasVersion     bool
	err            error // of an attribute; of no importance in structured mode
}

// read goes over the headers once and gives the attributes among them to d.
func (b Binding) read(d *builder, header map[string][]string) (m message, err error) {
	for key, values := range header {
		if len(values) == 0 {
			continue
		}
		if b.isContentType(key) {
			if m.hasContentType || len(values) > 1 {
				return m, fmt.Errorf("event: header %s: occurs more than once", quote(key))
			}
			m.contentType, m.hasContentType = values[0], true
			continue
		}
		if !hasPrefixFold(key, b.Prefix) {
			continue
		}
		name := key[len(b.Prefix):]
		index := attributeIndex(name)
		if index < 0 && checkNewName(name) != nil { // in another case, or nothing at all
			name = lower(name)
			index = attributeIndex(name)
		}
		m.hasVersion = m.hasVersion || index == attributeVersion
		if m.err == nil {
			m.err = b.readAttribute(d, index, name, values)
		}
	}
	return m, nil
}

func (b Binding) isContentType(name string) bool {
	if b.ContentType == "" {
		return equalFold(name, "content-type")
	}
	return equalFold(name, b.ContentType)
}

func (b Binding) readAttribute(d *builder, index int, name string, values []string) error {
	if err := d.claim(index, name); err != nil {
		return err
	}
	if len(values) > 1 {
		return errTwice(name)
	}
	value, err := b.readValue(values[0])
	if err != nil {
		return invalid(name, "%w", err)
	}
	if index < 0 {
		return d.extend(name, value)
	}
	return d.set(index, value)
}

func (b Binding) readValue(s string) (string, error) {
	if b.Percent {
		return unescape(s)
	}
	if !utf8.ValidString(s) {
		return "", errUTF8
	}
	return s, nil
}

// decodeStructured decodes a message in structured mode. Its extensions become
// strings, so that a receiver sees one form in both modes.
func decodeStructured(body []byte) (Event, error) {
	e, err := unmarshal(body)
	if err != nil {
		return Event{}, err
	}
	c, err := contextOf(e)
	if err != nil {
		return Event{}, err
	}
	for name, value := range c.Extensions {
		s, err := canonical(value)
		if err != nil {
			return Event{}, invalid(name, "%w", err)
		}
		c.Extensions[name] = s
	}
	return e, nil
}
