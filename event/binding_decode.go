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
	contentType, hasContentType, err := b.readContentType(header)
	if err != nil {
		return Event{}, err
	}
	switch format := mediaType(contentType); {
	case equalFold(format, jsonFormat):
		return decodeStructured(body)
	case hasPrefixFold(format, anyFormat):
		return Event{}, fmt.Errorf("event: content type %s is not supported, the only event format is %s: %w",
			quote(contentType), jsonFormat, errors.ErrUnsupported)
	case !hasContentType && isObject(body) && !b.hasVersion(header):
		return decodeStructured(body)
	}

	d := newBuilder()
	if err := b.readAttributes(&d, header); err != nil {
		return Event{}, err
	}
	if hasContentType && (b.ContentType != "" || d.cell.context.DataContentType == nil) {
		if !utf8.ValidString(contentType) {
			return Event{}, invalid("datacontenttype", "%w", errUTF8)
		}
		if err := d.set(attributeContentType, contentType); err != nil {
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

// readContentType returns the header that tells the content mode.
func (b Binding) readContentType(header map[string][]string) (value string, ok bool, err error) {
	for name, values := range header {
		if len(values) == 0 || !b.isContentType(name) {
			continue
		}
		if ok || len(values) > 1 {
			return "", false, fmt.Errorf("event: header %s: occurs more than once", quote(name))
		}
		value, ok = values[0], true
	}
	return value, ok, nil
}

func (b Binding) isContentType(name string) bool {
	if b.ContentType == "" {
		return equalFold(name, "content-type")
	}
	return equalFold(name, b.ContentType)
}

func (b Binding) hasVersion(header map[string][]string) bool {
	for name, values := range header {
		if attribute, ok := b.attribute(name); ok && attribute == "specversion" && len(values) > 0 {
			return true
		}
	}
	return false
}

// attribute returns the name of the attribute that a header is for.
func (b Binding) attribute(header string) (name string, ok bool) {
	if !hasPrefixFold(header, b.Prefix) || b.isContentType(header) {
		return "", false
	}
	return lower(header[len(b.Prefix):]), true
}

func (b Binding) readAttributes(d *builder, header map[string][]string) error {
	for key, values := range header {
		name, ok := b.attribute(key)
		if !ok || len(values) == 0 {
			continue
		}
		index, err := d.claim(name)
		if err != nil {
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
			d.extend(name, value)
		} else if err := d.set(index, value); err != nil {
			return err
		}
	}
	return nil
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
