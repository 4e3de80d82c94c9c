// Package event makes, checks, compares and encodes CloudEvents 1.0 events.
//
// The event itself is the CloudEvents SDK's: [Event] is an alias, so events pass
// between this module and any other user of the SDK without conversion. What the
// package adds is what a message broker has to be sure of: [Check] holds an event
// to the whole specification, [Clone] shares nothing with the original, [Equal]
// compares as the wire does, and the codecs, [Marshal] for structured JSON, [Binding]
// for binary mode over string headers and [AppendAttributes] for stores, carry every
// valid event so that it arrives equal.
//
// All functions are safe for concurrent use as long as nobody changes the events
// that they are given.
package event

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// Event is a CloudEvents event, as the CloudEvents SDK defines it. Make one with
// [New], or take a zero Event, call SetSpecVersion("1.0") and the other setters.
//
// Things worth knowing about the type:
//
//   - Copying an Event copies a pointer to its attributes: after c := e,
//     c.SetType changes e too. [Clone] makes an independent event.
//   - A setter that refuses its argument leaves the old value and records the
//     error in FieldErrors; [Check] reports it.
//   - SetSource parses its argument and Source renders it again, so that "a b" is
//     reported as "a%20b".
//   - SetExtension lower-cases names, and truncates a float to an integer before
//     this package can see it.
//   - Most attributes are read by methods (ID, Source, Type, Subject, Time,
//     Extensions, Data), all of which accept the zero Event; the setters do not.
//
// An extension value is a bool, an integer in the range of int32, a string, a
// []byte, a URI, a URI-reference or a time. Extension values arrive as the
// canonical string of their type, on every provider; [Equal] compares that way
// [EVT-3]. The SDK's package types converts them back: types.ToInteger,
// types.ToBool, types.ToTime and types.ToBinary accept both forms.
type Event = sdk.Event

// Bounds on what [Check] accepts [EVT-2].
const (
	// MaxTypeLength is the length of the longest type, in bytes.
	MaxTypeLength = 255

	// MaxExtensions is the largest number of extensions.
	MaxExtensions = 64

	// MaxAttributeBytes is the largest size of all attributes together, names
	// included, in the form that [NATS] encodes them in.
	MaxAttributeBytes = 32 << 10
)

// New returns an event with a new id, the current time in UTC, and data encoded as
// JSON under content type application/json. The result has passed [Check];
// otherwise New returns the zero Event and an error.
//
// A []byte is not encoded but copied, under application/octet-stream, and a
// [json.RawMessage] is copied as it stands, under application/json. When data is
// nil, or either of these two and empty, the event has no data and no content
// type.
//
// The id is a version 7 UUID. Ids order by the time of the call: later calls in the
// process return greater ids, also when the clock steps back.
func New(source, typ string, data any) (Event, error) {
	var ref url.URL
	if err := parseURL(source, &ref); err != nil {
		return Event{}, invalid("source", "%w", err)
	}
	now := time.Now()
	c := &cell{time: types.Timestamp{Time: now.UTC().Round(0)}} // no monotonic reading
	c.context = sdk.EventContextV1{
		ID:     newID(now),
		Source: types.URIRef{URL: ref},
		Type:   typ,
		Time:   &c.time,
	}
	e := Event{Context: &c.context}

	switch data := data.(type) {
	case nil:
	case []byte:
		c.contentType = "application/octet-stream"
		e.DataEncoded = append(e.DataEncoded, data...)
		e.DataBase64 = len(data) > 0
	case json.RawMessage:
		c.contentType = "application/json"
		e.DataEncoded = append(e.DataEncoded, data...)
	default:
		c.contentType = "application/json"
		var err error
		if e.DataEncoded, err = json.Marshal(data); err != nil {
			return Event{}, fmt.Errorf("event: data: %w", err)
		}
	}
	if len(e.DataEncoded) > 0 {
		c.context.DataContentType = &c.contentType
	}

	if err := Check(e); err != nil {
		return Event{}, err
	}
	return e, nil
}

// cell keeps a context and what its pointers point to in one allocation.
type cell struct {
	context     sdk.EventContextV1
	contentType string
	subject     string
	time        types.Timestamp
}

// contextOf returns e's context, or an error when e is not of version 1.0. It is
// how the package reads attributes: the methods of Event copy or render on each
// call, and panic on a context that is a nil pointer.
func contextOf(e Event) (*sdk.EventContextV1, error) {
	switch c := e.Context.(type) {
	case *sdk.EventContextV1:
		if c != nil {
			return c, nil
		}
	case *sdk.EventContextV03:
		if c != nil {
			return nil, invalid("specversion", "is 0.3, must be 1.0")
		}
	}
	return nil, invalid("specversion", "is missing: the event has no context of version 1.0")
}
