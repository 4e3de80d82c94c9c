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
// itself, not a copy.
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

	// Names and values are written one after the other into one buffer, which
	// becomes one string that all headers share.
	var (
		text [1024]byte
		ends [2 * 24]int
	)
	w := headers{binding: b, text: text[:0], ends: ends[:0]}
	w = w.name("specversion").plain("1.0")
	w = w.name("id").value(c.ID)
	if w = w.name("source"); plain(&c.Source.URL) {
		w.text = appendPlain(w.text, &c.Source.URL)
		w = w.end()
	} else {
		w = w.value(c.Source.String())
	}
	w = w.name("type").value(c.Type)
	if c.DataContentType != nil {
		w = w.contentType(*c.DataContentType)
	}
	if c.DataSchema != nil {
		w = w.name("dataschema").value(c.DataSchema.String())
	}
	if c.Subject != nil {
		w = w.name("subject").value(*c.Subject)
	}
	if hasTime(c) {
		if !timeInRange(c.Time.Time) {
			return nil, invalid("time", "%w", errTimeRange)
		}
		w = w.name("time")
		w.text = appendTime(w.text, c.Time.Time)
		w = w.end()
	}
	for name, value := range c.Extensions {
		if err := checkExtensionName(name); err != nil {
			return nil, invalid(name, "%w", err)
		}
		s, err := canonical(value)
		if err != nil {
			return nil, invalid(name, "%w", err)
		}
		w = w.name(name).value(s)
	}
	if w.err != nil {
		return nil, w.err
	}
	w.flush(header)
	return e.DataEncoded, nil
}
