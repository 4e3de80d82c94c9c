package event_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
)

// minimal returns an event with the required attributes only.
func minimal() event.Event {
	e := sdk.New()
	e.SetID("1")
	e.SetSource("/orders")
	e.SetType("order.created")
	return e
}

// full returns an event with every attribute, an extension of every type, and data.
func full() event.Event {
	e := minimal()
	e.SetSubject("order 1/é")
	e.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.FixedZone("", 3600)))
	e.SetDataSchema("https://example.com/schema.json?v=1")
	e.SetExtension("exbool", true)
	e.SetExtension("exint", 42)
	e.SetExtension("exstring", `50% "off", € 😀`)
	e.SetExtension("exbinary", []byte{0, 1, 2, 255})
	e.SetExtension("exurl", &url.URL{Scheme: "https", Host: "example.com", Path: "/a b"})
	e.SetExtension("exref", types.URIRef{URL: url.URL{Path: "a/b"}})
	e.SetExtension("extime", time.Date(2020, 2, 29, 1, 2, 3, 4, time.UTC))
	if err := e.SetData("application/json", map[string]any{"order": 1}); err != nil {
		panic(err)
	}
	return e
}

// typical returns what the benchmarks and the allocation limits are about: six
// attributes and three extensions, with n bytes of JSON.
func typical(n int) event.Event {
	e := minimal()
	e.SetID("0198c0de-7a3b-7f00-8000-0123456789ab")
	e.SetSource("https://shop.example.com/orders")
	e.SetSubject("customer/4711")
	e.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC))
	e.SetDataContentType("application/json")
	e.SetExtension("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	e.SetExtension("partitionkey", "4711")
	e.SetExtension("tenant", "acme")
	data := []byte(`{"items":[{"sku":"a-1","count":1}`)
	for len(data) < n-40 {
		data = append(data, `,{"sku":"b-23","price":12.50,"gift":true}`...)
	}
	e.DataEncoded = append(data, `]}`...)
	return e
}

func context(t *testing.T, e event.Event) *sdk.EventContextV1 {
	t.Helper()
	c, ok := e.Context.(*sdk.EventContextV1)
	if !ok {
		t.Fatalf("context is a %T", e.Context)
	}
	return c
}

// with returns a minimal event after change.
func with(change func(e *event.Event, c *sdk.EventContextV1)) event.Event {
	e := minimal()
	change(&e, e.Context.(*sdk.EventContextV1))
	return e
}

func pointer[T any](v T) *T { return &v }

// manyMembers returns n extensions as JSON members, each with a comma before it.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	return b.String()
}

func epoch(seconds, nanoseconds int64) time.Time {
	return time.Unix(seconds, nanoseconds).UTC()
}
