package event

import (
	"bytes"
	"net/url"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
)

// Equal reports whether a and b are the same event, which is how the module
// compares what was published with what arrives: every context attribute, source
// as the event reports it, time as an instant to the nanosecond, extension values
// by the canonical string of their type, and data byte for byte. Empty data and no
// data are the same thing [EVT-3].
//
// DataBase64 and FieldErrors are no part of an event's meaning and are not
// compared. Two zero Events are equal. A value that has no canonical string, and a
// context of a type that is not the SDK's, equals nothing, itself included.
func Equal(a, b Event) bool {
	if !bytes.Equal(a.DataEncoded, b.DataEncoded) {
		return false
	}
	ca, versionA, ok := anyContext(a)
	if !ok {
		return false
	}
	cb, versionB, ok := anyContext(b)
	if !ok || versionA != versionB {
		return false
	}
	if versionA == "" {
		return true
	}
	return ca.ID == cb.ID &&
		ca.Type == cb.Type &&
		equalURL(&ca.Source.URL, &cb.Source.URL) &&
		valueOf(ca.DataContentType) == valueOf(cb.DataContentType) &&
		valueOf(ca.Subject) == valueOf(cb.Subject) &&
		timeOf(ca).Equal(timeOf(cb)) &&
		equalURL(schemaOf(ca), schemaOf(cb)) &&
		equalExtensions(ca.Extensions, cb.Extensions)
}

// anyContext returns e's context as one of version 1.0, and the version that it
// really has: none for the zero Event.
func anyContext(e Event) (c *sdk.EventContextV1, version string, ok bool) {
	switch c := e.Context.(type) {
	case nil:
		return nil, "", true
	case *sdk.EventContextV1:
		if c == nil {
			return nil, "", true
		}
		return c, sdk.CloudEventsVersionV1, true
	case *sdk.EventContextV03:
		if c == nil {
			return nil, "", true
		}
		return c.AsV1(), sdk.CloudEventsVersionV03, true
	}
	return nil, "", false
}

func equalExtensions(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for name, va := range a {
		vb, ok := b[name]
		if !ok {
			return false
		}
		sa, err := canonical(va)
		if err != nil {
			return false
		}
		sb, err := canonical(vb)
		if err != nil || sa != sb {
			return false
		}
	}
	return true
}

// equalURL compares fields first, since String allocates.
func equalURL(a, b *url.URL) bool {
	return *a == *b || a.String() == b.String()
}

func schemaOf(c *sdk.EventContextV1) *url.URL {
	if c.DataSchema == nil {
		return new(url.URL)
	}
	return &c.DataSchema.URL
}

func timeOf(c *sdk.EventContextV1) time.Time {
	if c.Time == nil {
		return time.Time{}
	}
	return c.Time.Time
}

func valueOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
