package event

import (
	"errors"

	"github.com/cloudevents/sdk-go/v2/types"
)

// attributeNames are the context attributes of CloudEvents 1.0.
var attributeNames = [...]string{
	"specversion", "id", "source", "type", "datacontenttype", "dataschema", "subject", "time",
}

// Indexes into attributeNames.
const (
	attributeVersion = iota
	attributeID
	attributeSource
	attributeType
	attributeContentType
	attributeSchema
	attributeSubject
	attributeTime
)

// attributeIndex returns the index of a name in attributeNames, or -1.
func attributeIndex(name string) int {
	switch name {
	case "specversion":
		return attributeVersion
	case "id":
		return attributeID
	case "source":
		return attributeSource
	case "type":
		return attributeType
	case "datacontenttype":
		return attributeContentType
	case "dataschema":
		return attributeSchema
	case "subject":
		return attributeSubject
	case "time":
		return attributeTime
	}
	return -1
}

// builder puts an event together from attributes that arrive as strings and in any
// order. Both decoders use it, so that they agree on what an attribute may look
// like. It accepts what can be represented; whether that is valid is for Check.
type builder struct {
	cell    *cell
	seen    [len(attributeNames)]bool
	version bool // specversion is 1.0
}

func newBuilder() builder {
	return builder{cell: new(cell)}
}

// claim notes that an attribute occurs, and reports an error when it did before. An
// index below 0 is that of an extension, whose name it only checks.
func (b *builder) claim(index int, name string) error {
	if index < 0 {
		if err := checkNewName(name); err != nil {
			return invalid(name, "%w", err)
		}
		return nil
	}
	if b.seen[index] {
		return errTwice(name)
	}
	b.seen[index] = true
	return nil
}

func errTwice(name string) error {
	return invalid(name, "occurs more than once")
}

// set gives a value to an attribute that has been claimed.
func (b *builder) set(index int, value string) error {
	c := &b.cell.context
	name := attributeNames[index]
	switch index {
	case attributeVersion:
		if value != "1.0" {
			return invalid(name, "is %s, must be 1.0", quote(value))
		}
		b.version = true
	case attributeID:
		c.ID = value
	case attributeSource:
		if err := parseURL(value, &c.Source.URL); err != nil {
			return invalid(name, "%w", err)
		}
	case attributeType:
		c.Type = value
	case attributeContentType:
		b.cell.contentType = value
		c.DataContentType = &b.cell.contentType
	case attributeSchema:
		c.DataSchema = new(types.URI)
		if err := parseURL(value, &c.DataSchema.URL); err != nil {
			return invalid(name, "%w", err)
		}
	case attributeSubject:
		b.cell.subject = value
		c.Subject = &b.cell.subject
	case attributeTime:
		t, err := parseTime(value)
		if err != nil {
			return invalid(name, "%w", err)
		}
		b.cell.time.Time = t
		c.Time = &b.cell.time
	}
	return nil
}

// extend gives a value to an extension that has been claimed, or reports that it
// has one.
func (b *builder) extend(name string, value any) error {
	if b.cell.context.Extensions == nil {
		b.cell.context.Extensions = make(map[string]any)
	}
	n := len(b.cell.context.Extensions)
	b.cell.context.Extensions[name] = value
	if len(b.cell.context.Extensions) == n {
		return errTwice(name)
	}
	return nil
}

// event returns the event, or an error when a required attribute is missing.
func (b *builder) event(data []byte) (Event, error) {
	c := &b.cell.context
	switch {
	case !b.version:
		return Event{}, invalid("specversion", "%w", errMissing)
	case c.ID == "":
		return Event{}, invalid("id", "%w", errMissing)
	case c.Source == (types.URIRef{}):
		return Event{}, invalid("source", "%w", errMissing)
	case c.Type == "":
		return Event{}, invalid("type", "%w", errMissing)
	}
	return Event{Context: c, DataEncoded: data}, nil
}

var errMissing = errors.New("is missing")
