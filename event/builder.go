package event

import (
	"errors"
	"slices"

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

// claim notes that the attribute occurs, and reports an error when it did before.
// It returns the attribute's index in attributeNames, or -1 for an extension.
func (b *builder) claim(name string) (int, error) {
	i := slices.Index(attributeNames[:], name)
	if i < 0 {
		if err := checkExtensionName(name); err != nil {
			return i, invalid(name, "%w", err)
		}
		if _, ok := b.cell.context.Extensions[name]; ok {
			return i, errTwice(name)
		}
		return i, nil
	}
	if b.seen[i] {
		return i, errTwice(name)
	}
	b.seen[i] = true
	return i, nil
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
		u, err := parseURL(value)
		if err != nil {
			return invalid(name, "%w", err)
		}
		c.Source.URL = u
	case attributeType:
		c.Type = value
	case attributeContentType:
		b.cell.contentType = value
		c.DataContentType = &b.cell.contentType
	case attributeSchema:
		u, err := parseURL(value)
		if err != nil {
			return invalid(name, "%w", err)
		}
		c.DataSchema = &types.URI{URL: u}
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

// extend gives a value to an extension that has been claimed.
func (b *builder) extend(name string, value any) {
	if b.cell.context.Extensions == nil {
		b.cell.context.Extensions = make(map[string]any)
	}
	b.cell.context.Extensions[name] = value
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
