package event

// Binding is the binary content mode of a protocol binding whose messages have
// string headers: attributes become headers and the data becomes the body. Its
// fields are the ways in which the bindings differ.
//
// A valid event, encoded and decoded, is [Equal] to the original [EVT-3], as far as
// the transport carries headers unchanged. Extensions come back as strings.
type Binding struct {
	// Prefix stands before an attribute's name in the name of its header. With an
	// empty Prefix every header is an attribute.
	Prefix string

	// ContentType names the header that carries the attribute datacontenttype, as
	// it is and never percent-encoded. Empty means that the attribute is written
	// like the others. When decoding, either is understood, and so is a header
	// named Content-Type if this is empty; the one that the binding writes wins.
	ContentType string

	// Percent says that values are percent-encoded: space, ", %, and everything
	// outside U+0021–U+007E as UTF-8 bytes. Without it they are written as they are,
	// and what would break a header is refused.
	Percent bool
}

// NATS is the binary content mode of the NATS protocol binding for CloudEvents,
// version 1.0.3-wip, section 3.1.
var NATS = Binding{Prefix: "ce-", Percent: true}

// Encode adds the headers of e's attributes to header, which must not be nil nor
// have any under b's names yet, and returns the body. The body is the event's data
// itself, not a copy, and the headers share the event's strings.
//
// Encode leaves it to the caller to [Check] the event. It refuses what it cannot
// write so that it arrives: an event that is not of version 1.0, an extension whose
// name or value is none, a time that RFC 3339 has no notation for, and, in headers
// that are not percent-encoded, characters that no attribute may have. Under a
// binding with ContentType, a datacontenttype that a receiver would take for
// structured mode is refused with [errors.ErrUnsupported]. In no case does Encode
// write a CR, LF or NUL, and when it returns an error it has not touched header.
func (b Binding) Encode(e Event, header map[string][]string) (body []byte, err error) {
	c, err := contextOf(e)
	if err != nil {
		return nil, err
	}

	var (
		list [16]field
		text [512]byte
	)
	w := headers{binding: b, list: list[:0], text: text[:0], err: &err}
	w = w.attribute(attributeVersion).plain("1.0")
	w = w.attribute(attributeID).value(c.ID)
	w = w.attribute(attributeSource).url(&c.Source.URL)
	w = w.attribute(attributeType).value(c.Type)
	if c.DataContentType != nil {
		w = w.contentType(b.ContentType, *c.DataContentType)
	}
	if c.DataSchema != nil {
		w = w.attribute(attributeSchema).url(&c.DataSchema.URL)
	}
	if c.Subject != nil {
		w = w.attribute(attributeSubject).value(*c.Subject)
	}
	if hasTime(c) {
		if !timeInRange(c.Time.Time) {
			return nil, invalid("time", "%w", errTimeRange)
		}
		w = w.attribute(attributeTime).time(c.Time.Time)
	}
	for name, value := range c.Extensions {
		if err := checkExtensionName(name); err != nil {
			return nil, invalid(name, "%w", err)
		}
		s, problem := canonical(value)
		if problem != nil {
			return nil, invalid(name, "%w", problem)
		}
		w = w.name(name).value(s)
	}
	if err != nil {
		return nil, err
	}
	w.flush(header)
	return e.DataEncoded, nil
}
