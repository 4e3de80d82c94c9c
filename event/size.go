package event

import (
	"net/url"

	sdk "github.com/cloudevents/sdk-go/v2/event"
)

// Size returns the number of bytes that e takes in the form that [NATS] encodes it
// in: names and values of the headers, and data. What a transport adds to separate
// headers is not in it. An attribute that [Check] refuses may count as nothing.
func Size(e Event) int {
	n := len(e.DataEncoded)
	c, err := contextOf(e)
	if err != nil {
		return n
	}
	n += headerSize("specversion") + len("1.0")
	n += headerSize("id") + escapedLen(c.ID)
	n += headerSize("source") + urlSize(&c.Source.URL)
	n += headerSize("type") + escapedLen(c.Type)
	if c.DataContentType != nil {
		n += headerSize("datacontenttype") + escapedLen(*c.DataContentType)
	}
	if c.DataSchema != nil {
		n += headerSize("dataschema") + urlSize(&c.DataSchema.URL)
	}
	if c.Subject != nil {
		n += headerSize("subject") + escapedLen(*c.Subject)
	}
	if hasTime(c) && timeInRange(c.Time.Time) {
		n += headerSize("time") + timeLen(c.Time.Time)
	}
	for name, value := range c.Extensions {
		if s, err := canonical(value); err == nil {
			n += headerSize(name) + escapedLen(s)
		}
	}
	return n
}

func headerSize(name string) int { return len("ce-") + len(name) }

func urlSize(u *url.URL) int {
	if plain(u) {
		return plainLen(u)
	}
	return escapedLen(u.String())
}

// hasTime reports whether c has a time. The SDK takes the zero time for none.
func hasTime(c *sdk.EventContextV1) bool {
	return c.Time != nil && !c.Time.IsZero()
}
