package event

import (
	"encoding/base64"
	"net/url"
	"slices"
	"unicode/utf8"

	sdk "github.com/cloudevents/sdk-go/v2/event"
)

// Marshal returns e in the CloudEvents JSON format, without whitespace of its own
// and the same bytes for equal members. An event that [Check] refuses is an error.
//
// Data under a JSON content type is put in byte for byte, never decoded, so that
// large numbers survive. Other data becomes a string, or base64 in data_base64 when
// DataBase64 is set or it is not UTF-8. Two corners: JSON with whitespace around it
// is sent as base64, since a JSON parser would drop the whitespace; and data under
// no content type goes as base64 too, unless it is JSON and DataBase64 is not set.
// [Unmarshal] returns an event that is [Equal] to e [EVT-3].
func Marshal(e Event) ([]byte, error) {
	if err := Check(e); err != nil {
		return nil, err
	}
	c, err := contextOf(e)
	if err != nil {
		return nil, err
	}

	dst := make([]byte, 0, Size(e)+len(e.DataEncoded)/2+256)
	dst = append(dst, `{"specversion":"1.0"`...)
	dst = appendMember(dst, "id", c.ID)
	dst = appendURLMember(dst, "source", &c.Source.URL)
	dst = appendMember(dst, "type", c.Type)
	if c.DataContentType != nil {
		dst = appendMember(dst, "datacontenttype", *c.DataContentType)
	}
	if c.DataSchema != nil {
		dst = appendURLMember(dst, "dataschema", &c.DataSchema.URL)
	}
	if c.Subject != nil {
		dst = appendMember(dst, "subject", *c.Subject)
	}
	if hasTime(c) {
		dst = appendName(dst, "time")
		dst = append(dst, '"')
		dst = appendTime(dst, c.Time.Time)
		dst = append(dst, '"')
	}
	if dst, err = appendExtensions(dst, c.Extensions); err != nil {
		return nil, err
	}
	dst = appendData(dst, c, e)
	return append(dst, '}'), nil
}

// appendExtensions keeps booleans and integers what they are. The order by name
// makes the result the same each time.
func appendExtensions(dst []byte, extensions map[string]any) ([]byte, error) {
	names := make([]string, 0, len(extensions))
	for name := range extensions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := extensions[name]
		s, err := canonical(value)
		if err != nil {
			return nil, invalid(name, "%w", err)
		}
		_, bare := value.(bool)
		if !bare {
			_, bare = integer(value)
		}
		if bare {
			dst = appendName(dst, name)
			dst = append(dst, s...)
		} else {
			dst = appendMember(dst, name, s)
		}
	}
	return dst, nil
}

func appendData(dst []byte, c *sdk.EventContextV1, e Event) []byte {
	data := e.DataEncoded
	if len(data) == 0 {
		return dst
	}
	var bare, text bool
	switch {
	case c.DataContentType == nil:
		bare = !e.DataBase64 && !spaceAround(data) && validJSON(data)
	case isJSON(*c.DataContentType):
		bare = !spaceAround(data)
	default:
		text = !e.DataBase64 && utf8.Valid(data)
	}
	switch {
	case bare:
		dst = appendName(dst, "data")
		return append(dst, data...)
	case text:
		dst = appendName(dst, "data")
		return appendString(dst, data)
	}
	dst = appendName(dst, "data_base64")
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

func spaceAround(data []byte) bool {
	return isSpace(data[0]) || isSpace(data[len(data)-1])
}

func appendMember(dst []byte, name, value string) []byte {
	return appendString(appendName(dst, name), value)
}

func appendURLMember(dst []byte, name string, u *url.URL) []byte {
	if !plain(u) {
		return appendMember(dst, name, u.String())
	}
	dst = append(appendName(dst, name), '"')
	return append(appendPlain(dst, u), '"')
}

// appendName appends the name of a member that is not the first.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, name...)
	return append(dst, `":`...)
}

// appendString appends s, which must be valid UTF-8, as a JSON string.
func appendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[c>>4], hex[c&0xf])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
