package event

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"unicode/utf8"
)

// Unmarshal returns the event that b holds in the CloudEvents JSON format, and
// nothing but that event. The event shares no memory with b and has passed
// [Check].
//
// A member that is null is unset. Extensions keep the types that JSON has: bool,
// int32 and string. Data under a JSON content type (*/json, */*+json, any case) or
// none is the bytes that stand there; a data of null is JSON too. Under another
// content type data must be a string, or null for none. The order of members is of
// no importance.
//
// Refused are, besides what is not UTF-8 or not JSON: a member that occurs twice,
// also if it is null; data together with data_base64; a name that is not an
// attribute's; a value that is an object, an array, or a number other than an
// integer in the range of int32; and an escape of half a surrogate pair.
//
// No input makes Unmarshal panic, hang, or allocate more than a small multiple of
// its size [SEC-3].
func Unmarshal(b []byte) (Event, error) {
	e, err := unmarshal(b)
	if err != nil {
		return Event{}, err
	}
	if err := Check(e); err != nil {
		return Event{}, err
	}
	return e, nil
}

// unmarshal is Unmarshal without the Check: what it returns can be represented and
// has the required attributes.
func unmarshal(b []byte) (Event, error) {
	if !utf8.Valid(b) {
		return Event{}, errors.New("event: JSON: is not valid UTF-8")
	}
	u := unmarshaler{
		scanner: scanner{b: b},
		builder: newBuilder(),
	}
	if err := u.object(); err != nil {
		return Event{}, err
	}
	maps.DeleteFunc(u.cell.context.Extensions, func(_ string, value any) bool { return value == nil })
	data, isBinary, err := u.payload()
	if err != nil {
		return Event{}, err
	}
	e, err := u.event(data)
	if err != nil {
		return Event{}, err
	}
	e.DataBase64 = isBinary
	return e, nil
}

// unmarshaler builds an event from the members of an object. What data means
// depends on datacontenttype, which may come later, so the values of data and
// data_base64 are set aside as they stand: empty when absent.
type unmarshaler struct {
	scanner
	builder
	data       []byte
	dataBase64 []byte
}

func (u *unmarshaler) object() error {
	u.space()
	if !u.take('{') {
		return u.fail("an event is an object")
	}
	u.space()
	for more := !u.take('}'); more; {
		if err := u.member(); err != nil {
			return err
		}
		u.space()
		switch {
		case u.take('}'):
			more = false
		case u.take(','):
			u.space()
		default:
			return u.fail("expected a comma or the end of the object")
		}
	}
	u.space()
	if u.i != len(u.b) {
		return u.fail("something follows the event")
	}
	return nil
}

func (u *unmarshaler) member() error {
	quoted, ok := u.string()
	if !ok {
		return u.fail("expected the name of a member")
	}
	key, err := unquoteJSON(quoted)
	if err != nil {
		return u.fail(err.Error())
	}
	u.space()
	if !u.take(':') {
		return u.fail("expected a colon")
	}
	u.space()
	start := u.i
	if !u.value() {
		return u.fail("the value of member " + quote(string(key)) + " is not JSON")
	}
	value := u.b[start:u.i]

	switch string(key) {
	case "data":
		return setAside(&u.data, "data", value)
	case "data_base64":
		return setAside(&u.dataBase64, "data_base64", value)
	}
	return u.attribute(attributeName(key), value)
}

// attributeName is string(key), without allocation for the attributes that are not
// extensions.
func attributeName(key []byte) string {
	for _, name := range attributeNames {
		if name == string(key) {
			return name
		}
	}
	return string(key)
}

func setAside(p *[]byte, name string, value []byte) error {
	if *p != nil {
		return fmt.Errorf("event: JSON: %s occurs more than once", name)
	}
	*p = value
	return nil
}

func (u *unmarshaler) attribute(name string, value []byte) error {
	index := attributeIndex(name)
	if err := u.claim(index, name); err != nil {
		return err
	}
	switch c := value[0]; {
	case c == '"':
		text, err := unquoteJSON(value)
		if err != nil {
			return invalid(name, "%w", err)
		}
		if index >= 0 {
			return u.set(index, string(text))
		}
		return u.extend(name, string(text))
	case c == 'n':
		if index < 0 {
			return u.extend(name, nil) // remembers that it occurred
		}
		return nil
	case index >= 0:
		return invalid(name, "is not a string")
	case c == 't':
		return u.extend(name, true)
	case c == 'f':
		return u.extend(name, false)
	case c == '{' || c == '[':
		return invalid(name, "is an object or an array")
	}
	n, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil {
		return invalid(name, "is a number other than an integer in the range of int32")
	}
	return u.extend(name, int32(n))
}

// payload returns the event's data, and whether it came as base64.
func (u *unmarshaler) payload() (data []byte, isBinary bool, err error) {
	if u.dataBase64 != nil && u.dataBase64[0] != 'n' {
		if u.data != nil {
			return nil, false, errors.New("event: JSON: has both data and data_base64")
		}
		if u.dataBase64[0] != '"' {
			return nil, false, errors.New("event: JSON: data_base64 is not a string")
		}
		text, err := unquoteJSON(u.dataBase64)
		if err != nil {
			return nil, false, fmt.Errorf("event: JSON: data_base64: %w", err)
		}
		data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Decode(data, text)
		if err != nil {
			return nil, false, errors.New("event: JSON: data_base64 is not base64")
		}
		return data[:n], n > 0, nil
	}
	contentType := u.cell.context.DataContentType
	switch {
	case u.data == nil:
		return nil, false, nil
	case contentType == nil || isJSON(*contentType):
		return bytes.Clone(u.data), false, nil
	case u.data[0] == '"':
		text, err := unquoteJSON(u.data)
		if err != nil {
			return nil, false, fmt.Errorf("event: JSON: data: %w", err)
		}
		return bytes.Clone(text), false, nil
	case u.data[0] == 'n':
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("event: JSON: data under content type %s is not a string", quote(*contentType))
}
