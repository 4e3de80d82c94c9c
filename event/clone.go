package event

import (
	"bytes"
	"maps"
	"net/url"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// Clone returns a copy of e that shares nothing with it that either side can
// change: not the attributes, the extensions, a []byte among their values, or the
// data. This goes further than the SDK's method of that name, which shares the
// []byte. The clone of the zero Event is the zero Event.
func Clone(e Event) Event {
	out := Event{
		DataEncoded: bytes.Clone(e.DataEncoded),
		DataBase64:  e.DataBase64,
		FieldErrors: maps.Clone(e.FieldErrors),
	}
	switch c := e.Context.(type) {
	case nil:
	case *sdk.EventContextV1:
		out.Context = cloneV1(c)
	case *sdk.EventContextV03:
		out.Context = cloneV03(c)
	default:
		out.Context = c.Clone()
	}
	return out
}

func cloneV1(c *sdk.EventContextV1) *sdk.EventContextV1 {
	if c == nil {
		return nil
	}
	out := &cell{context: *c}
	if c.DataContentType != nil {
		out.contentType = *c.DataContentType
		out.context.DataContentType = &out.contentType
	}
	if c.Subject != nil {
		out.subject = *c.Subject
		out.context.Subject = &out.subject
	}
	if c.Time != nil {
		out.time = *c.Time
		out.context.Time = &out.time
	}
	out.context.DataSchema = clonePointer(c.DataSchema)
	out.context.Extensions = cloneExtensions(c.Extensions)
	return &out.context
}

func cloneV03(c *sdk.EventContextV03) *sdk.EventContextV03 {
	if c == nil {
		return nil
	}
	out := *c
	out.DataContentType = clonePointer(c.DataContentType)
	out.DataContentEncoding = clonePointer(c.DataContentEncoding)
	out.Subject = clonePointer(c.Subject)
	out.Time = clonePointer(c.Time)
	out.SchemaURL = clonePointer(c.SchemaURL)
	out.Extensions = cloneExtensions(c.Extensions)
	return &out
}

func cloneExtensions(extensions map[string]any) map[string]any {
	if extensions == nil {
		return nil
	}
	out := make(map[string]any, len(extensions))
	for name, value := range extensions {
		out[name] = cloneValue(value)
	}
	return out
}

// cloneValue copies what the value's type lets others change. A pointer to
// something that is no CloudEvents value, which Check refuses, stays shared.
func cloneValue(v any) any {
	switch v := v.(type) {
	case []byte:
		return bytes.Clone(v)
	case *url.URL:
		return clonePointer(v)
	case *types.URI:
		return clonePointer(v)
	case *types.URIRef:
		return clonePointer(v)
	case *time.Time:
		return clonePointer(v)
	case *types.Timestamp:
		return clonePointer(v)
	}
	return v
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
