// Package attribute reads attributes of events by name, for the packages that
// route and filter.
package attribute

import (
	"errors"
	"math"
	"net/url"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
)

// A Kind is what an attribute's value is, as far as filters tell.
type Kind uint8

// The kinds. A value of any other type of CloudEvents is a String.
const (
	String Kind = iota
	Integer
	Boolean
)

// Lookup returns the canonical string of the attribute, which is what arrives
// when the event is published, and reports whether the event has it: a time is
// in RFC 3339 and UTC. An attribute with a value that no CloudEvent can have
// is missing, and so is every attribute of an event that is not of version
// 1.0. Lookup allocates only for values that are not strings.
func Lookup(e event.Event, name string) (text string, kind Kind, ok bool) {
	c, ok := e.Context.(*sdk.EventContextV1)
	if !ok || c == nil {
		return "", String, false
	}
	switch name {
	case "specversion":
		text = sdk.CloudEventsVersionV1
	case "id":
		text = c.ID
	case "source":
		text = c.Source.String()
	case "type":
		text = c.Type
	case "datacontenttype":
		text = valueOf(c.DataContentType)
	case "subject":
		text = valueOf(c.Subject)
	case "dataschema":
		if c.DataSchema != nil {
			text = c.DataSchema.String()
		}
	case "time":
		if c.Time != nil && !c.Time.IsZero() {
			text = types.FormatTime(c.Time.Time)
		}
	default:
		return extension(c.Extensions[name])
	}
	return text, String, text != ""
}

// extension takes the types that package event does.
func extension(v any) (text string, kind Kind, ok bool) {
	switch v := v.(type) {
	case string:
		return v, String, true
	case bool:
		return types.FormatBool(v), Boolean, true
	case float32:
		return extension(float64(v))
	case float64:
		if v != math.Trunc(v) {
			return "", Integer, false // Format would cut it short
		}
		kind = Integer
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, uintptr:
		kind = Integer
	case []byte,
		time.Time, *time.Time, types.Timestamp, *types.Timestamp,
		url.URL, *url.URL, types.URI, *types.URI, types.URIRef, *types.URIRef:
	default:
		return "", String, false
	}
	text, err := types.Format(v)
	return text, kind, err == nil
}

func valueOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Check returns an error if no CloudEvent can have an attribute of the name.
func Check(name string) error {
	if name == "" || name == "data" {
		return errName
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return errName
		}
	}
	return nil
}

var errName = errors.New("no CloudEvent has an attribute of that name: it is one or more of a-z and 0-9, and not data")
