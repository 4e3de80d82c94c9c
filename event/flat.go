package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// The flat form of attributes is
//
//	version  1 byte: flatVersion
//	count    1 byte: the number of extensions, 255 for that many and more
//	fields   in the order of attributeNames, then the extensions in any order:
//	         kind    1 byte: index into attributeNames, or flatExtension
//	         name    of an extension: its length as uvarint, and the name
//	         value   its length as uvarint, and the value
//
// with the time as 8 bytes of seconds since 1970 and 4 of nanoseconds, big-endian.
const (
	flatVersion   = 1
	flatExtension = byte(len(attributeNames))
	flatTimeSize  = 12
	flatFieldSize = 3 // at least, of an extension
)

// AppendAttributes appends e's attributes to dst in a flat form and returns the
// extended slice. It is for stores that keep events: smaller than headers, quicker
// to read than they are, and made in no allocation but for dst's growth. The data
// is not part of it. The form is stable: later versions read what this one wrote.
//
// The same holds as for [Binding.Encode]: AppendAttributes leaves it to the caller
// to [Check] the event, and refuses what it cannot write so that it arrives. It
// keeps nothing of e. On an error it returns nil, and has not changed dst.
func AppendAttributes(dst []byte, e Event) ([]byte, error) {
	c, err := contextOf(e)
	if err != nil {
		return nil, err
	}
	dst = append(dst, flatVersion, byte(min(len(c.Extensions), 255)))
	dst = appendField(dst, attributeID, c.ID)
	if u := &c.Source.URL; plain(u) {
		dst = binary.AppendUvarint(append(dst, attributeSource), uint64(plainLen(u)))
		dst = appendPlain(dst, u)
	} else {
		dst = appendField(dst, attributeSource, u.String())
	}
	dst = appendField(dst, attributeType, c.Type)
	if c.DataContentType != nil {
		dst = appendField(dst, attributeContentType, *c.DataContentType)
	}
	if c.DataSchema != nil {
		dst = appendField(dst, attributeSchema, c.DataSchema.String())
	}
	if c.Subject != nil {
		dst = appendField(dst, attributeSubject, *c.Subject)
	}
	if hasTime(c) {
		if !timeInRange(c.Time.Time) {
			return nil, invalid("time", "%w", errTimeRange)
		}
		dst = append(dst, attributeTime, flatTimeSize)
		dst = binary.BigEndian.AppendUint64(dst, uint64(c.Time.Unix()))
		dst = binary.BigEndian.AppendUint32(dst, uint32(c.Time.Nanosecond()))
	}
	for name, value := range c.Extensions {
		if err := checkExtensionName(name); err != nil {
			return nil, invalid(name, "%w", err)
		}
		s, err := canonical(value)
		if err != nil {
			return nil, invalid(name, "%w", err)
		}
		dst = appendField(dst, flatExtension, name)
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	return dst, nil
}

func appendField(dst []byte, kind byte, value string) []byte {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// ParseAttributes returns the event whose attributes [AppendAttributes] wrote, with
// data as its data. The event shares both: the attributes are a string so that
// several events may, the data is not copied either.
//
// It accepts and returns exactly what [NATS] would, had the same event been encoded
// there and decoded. Nothing else is accepted: an attribute that is missing or
// occurs twice, a value that is not UTF-8 or does not parse, bytes that are left
// over, and a version that it does not know are errors. It does not call [Check].
func ParseAttributes(attributes string, data []byte) (Event, error) {
	r := flatReader{rest: attributes}
	version, count := r.byte(), int(r.byte())
	switch {
	case r.short:
		return Event{}, errFlat
	case version != flatVersion:
		return Event{}, fmt.Errorf("event: attributes in a flat form of version %d, only %d is known", version, flatVersion)
	}

	b := newBuilder()
	b.version = true
	if count > 0 {
		b.cell.context.Extensions = make(map[string]any, min(count, len(r.rest)/flatFieldSize))
	}
	for last := -1; r.rest != ""; {
		kind := r.byte()
		switch {
		case kind == flatExtension:
			name, value := r.string(), r.string()
			if r.short {
				return Event{}, errFlat
			}
			if err := b.flatExtension(name, value); err != nil {
				return Event{}, err
			}
		case kind > flatExtension || kind == attributeVersion || int(kind) <= last:
			return Event{}, errFlat
		default:
			value := r.string()
			if r.short {
				return Event{}, errFlat
			}
			if err := b.flatAttribute(int(kind), value); err != nil {
				return Event{}, err
			}
		}
		last = int(kind)
	}
	if count != min(len(b.cell.context.Extensions), 255) {
		return Event{}, errFlat
	}
	e, err := b.event(data)
	if err != nil {
		return Event{}, err
	}
	e.DataBase64 = !utf8.Valid(data)
	return e, nil
}

var errFlat = errors.New("event: attributes are not in flat form")

func (b *builder) flatAttribute(index int, value string) error {
	if index != attributeTime {
		if !utf8.ValidString(value) {
			return invalid(attributeNames[index], "%w", errUTF8)
		}
		return b.set(index, value)
	}
	if len(value) != flatTimeSize {
		return errFlat
	}
	var fixed [flatTimeSize]byte
	copy(fixed[:], value)
	seconds, nanoseconds := int64(binary.BigEndian.Uint64(fixed[:8])), binary.BigEndian.Uint32(fixed[8:])
	if seconds < firstSecond || seconds > lastSecond || nanoseconds >= 1e9 {
		return invalid("time", "%w", errTimeRange)
	}
	c := b.cell
	c.time.Time = time.Unix(seconds, int64(nanoseconds)).UTC()
	c.context.Time = &c.time
	return nil
}

func (b *builder) flatExtension(name, value string) error {
	if err := checkExtensionName(name); err != nil {
		return invalid(name, "%w", err)
	}
	if !utf8.ValidString(value) {
		return invalid(name, "%w", errUTF8)
	}
	return b.extend(name, value)
}

// flatReader takes attributes in flat form apart. Once something is missing it is
// short, and returns nothing any more.
type flatReader struct {
	rest  string
	short bool
}

func (r *flatReader) byte() byte {
	if r.rest == "" {
		r.short = true
		return 0
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

func (r *flatReader) string() string {
	n := 0
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if n |= int(c&0x7f) << shift; shift == 28 || n > len(r.rest) {
			r.short, r.rest = true, ""
			return ""
		}
		if c < 0x80 {
			break
		}
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}
