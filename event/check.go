package event

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	sdk "github.com/cloudevents/sdk-go/v2/event"
)

// Check reports whether e is valid: nil, or an error that names the attribute.
// What Check accepts, the SDK's Validate accepts too.
//
// Valid means the CloudEvents 1.0 rules in full, where the SDK's Validate is
// looser. Refused are: FieldErrors set; an extension named data, data_base64, or
// with an upper-case letter; control characters or invalid UTF-8 in any attribute;
// data that is not JSON under a JSON type (*/json, */*+json, any case); spec
// version other than 1.0; the zero Event. No data is valid under any content type
// [EVT-1]. So is any data under none.
//
// Bounds: type at most 255 bytes, at most 64 extensions, all attributes together
// at most 32 KiB in encoded form [EVT-2]. The size of the data is not checked;
// providers hold [Size] against their limit.
//
// Three rules follow from the promise that what arrives equals what was published.
// source and dataschema must be made of the characters of a URI and render to
// something that parses back to itself, which the result of a parse nearly always
// does. id, source, type and subject must not be blank, since the SDK's Validate
// would refuse them on arrival. A time must be in the years 0 to 9999, and the zero
// time is no time.
//
// An extension may be the empty string, which is a value like any other. It may
// be a float if it is whole.
//
// Check does not panic, whatever e holds, and does not keep or change it.
func Check(e Event) error {
	c, err := contextOf(e)
	if err != nil {
		return err
	}
	if err := checkFieldErrors(e.FieldErrors); err != nil {
		return err
	}
	k := checker{size: headerSize("specversion") + len("1.0")}
	if err := k.attributes(c); err != nil {
		return err
	}
	if err := k.extensions(c.Extensions); err != nil {
		return err
	}
	if k.size > MaxAttributeBytes {
		return fmt.Errorf("event: the attributes take %d bytes in encoded form, at most %d are allowed", k.size, MaxAttributeBytes)
	}
	if len(e.DataEncoded) > 0 && c.DataContentType != nil && isJSON(*c.DataContentType) && !validJSON(e.DataEncoded) {
		return fmt.Errorf("event: data: is not JSON, as content type %s says", quote(*c.DataContentType))
	}
	return nil
}

// checker goes through the attributes of one event and adds up their size.
type checker struct {
	size int
}

func (k *checker) attributes(c *sdk.EventContextV1) error {
	if err := k.notBlank("id", c.ID); err != nil {
		return err
	}
	if err := k.uri("source", &c.Source.URL); err != nil {
		return err
	}
	if len(c.Type) > MaxTypeLength {
		return invalid("type", "is %d bytes long, at most %d are allowed", len(c.Type), MaxTypeLength)
	}
	if err := k.notBlank("type", c.Type); err != nil {
		return err
	}
	if c.DataContentType != nil {
		if err := k.text("datacontenttype", *c.DataContentType); err != nil {
			return err
		}
		if !isMediaType(*c.DataContentType) {
			return invalid("datacontenttype", "is not a media type (RFC 2046)")
		}
	}
	if c.DataSchema != nil {
		if !c.DataSchema.IsAbs() {
			return invalid("dataschema", "is not an absolute URI")
		}
		if err := k.uri("dataschema", &c.DataSchema.URL); err != nil {
			return err
		}
	}
	if c.Subject != nil {
		if err := k.notBlank("subject", *c.Subject); err != nil {
			return err
		}
	}
	if hasTime(c) {
		if !timeInRange(c.Time.Time) {
			return invalid("time", "%w", errTimeRange)
		}
		k.size += headerSize("time") + timeLen(c.Time.Time)
	}
	return nil
}

func (k *checker) extensions(extensions map[string]any) error {
	if len(extensions) > MaxExtensions {
		return fmt.Errorf("event: %d extensions, at most %d are allowed", len(extensions), MaxExtensions)
	}
	for name, value := range extensions {
		if err := checkExtensionName(name); err != nil {
			return invalid(name, "%w", err)
		}
		s, err := canonical(value)
		if err != nil {
			return invalid(name, "%w", err)
		}
		if err := k.text(name, s); err != nil {
			return err
		}
	}
	return nil
}

func (k *checker) text(name, value string) error {
	all, escapes := classify(value)
	if all&(control|wide) != 0 {
		if err := checkText(value); err != nil {
			return invalid(name, "%w", err)
		}
	}
	k.size += headerSize(name) + len(value) + 2*escapes
	return nil
}

func (k *checker) notBlank(name, value string) error {
	if value == "" || classes[value[0]] != unreserved && strings.TrimSpace(value) == "" {
		return invalid(name, "must not be blank")
	}
	return k.text(name, value)
}

func (k *checker) uri(name string, u *url.URL) error {
	if plain(u) {
		k.size += headerSize(name) + plainLen(u)
		return nil
	}
	s := u.String()
	if s == "" {
		return invalid(name, "must not be empty")
	}
	if !uriText(s) {
		return invalid(name, "has a character that is not allowed in a URI")
	}
	var again url.URL
	if err := parseURL(s, &again); err != nil || again.String() != s {
		return invalid(name, "does not parse back to itself")
	}
	return k.text(name, s)
}

// checkFieldErrors reports the first error by name, so that the answer does not
// change from call to call.
func checkFieldErrors(fields map[string]error) error {
	if len(fields) == 0 {
		return nil
	}
	name := slices.Min(slices.Collect(maps.Keys(fields)))
	err := fields[name]
	if parse := (*url.Error)(nil); errors.As(err, &parse) {
		err = errURL
	}
	if err == nil {
		err = errors.New("FieldErrors names it without an error")
	}
	return invalid(strings.TrimPrefix(name, "extension:"), "the value that was set last was refused: %w", err)
}

// checkText refuses the characters that the CloudEvents type String leaves out.
func checkText(s string) error {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return errControl
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return errUTF8 // surrogates too
		case r <= 0x9f:
			return errControl
		case r&0xfffe == 0xfffe, 0xfdd0 <= r && r <= 0xfdef:
			return errNoncharacter
		}
		i += n
	}
	return nil
}

var (
	errControl      = errors.New("has a control character")
	errUTF8         = errors.New("is not valid UTF-8")
	errNoncharacter = errors.New("has a Unicode noncharacter")

	errName     = errors.New("an extension's name is one or more of a-z and 0-9")
	errReserved = errors.New("the name is not free for extensions")
)

func checkExtensionName(name string) error {
	if attributeIndex(name) >= 0 {
		return errReserved
	}
	return checkNewName(name)
}

// checkNewName is checkExtensionName for what is no attribute's name.
func checkNewName(name string) error {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return errName
		}
	}
	switch name {
	case "":
		return errName
	case "data":
		return errReserved
	}
	return nil
}

// isMediaType reports whether s is a media type with both type and subtype.
func isMediaType(s string) bool {
	if s == "application/json" {
		return true
	}
	mediaType, subtype, ok := strings.Cut(s, "/")
	if !ok || strings.TrimSpace(s) != s {
		return false
	}
	if mediaType != "" && subtype != "" && only(mediaType, unreserved|plus) && only(subtype, unreserved|plus) {
		return true // without parameters; spares the allocations below
	}
	mediaType, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(mediaType, "/")
}

// invalid returns an error about one attribute.
func invalid(name, format string, args ...any) error {
	return fmt.Errorf("event: attribute %s: %w", quote(name), fmt.Errorf(format, args...))
}

// quote quotes text of unknown origin for an error and cuts it short [SEC-1].
func quote(s string) string {
	const limit = 64
	if len(s) > limit {
		return strconv.QuoteToASCII(s[:limit]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
