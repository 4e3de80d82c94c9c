package filter_test

import (
	"context"
	"errors"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/filter"
)

// full returns an event with every attribute, and an extension of every type.
func full() event.Event {
	e := sdk.New("1.0")
	e.SetID("17")
	e.SetSource("https://shop.example.com/orders")
	e.SetType("order.placed")
	e.SetSubject("customer/4711")
	e.SetDataContentType("application/json")
	e.SetDataSchema("https://example.com/schema")
	e.SetTime(time.Date(2026, 1, 2, 4, 4, 5, 120, time.FixedZone("", 3600)))
	e.SetExtension("tenant", "acme")
	e.SetExtension("empty", "")
	e.SetExtension("exbool", true)
	e.SetExtension("exint", -42)
	e.SetExtension("exbinary", []byte{0, 1, 255})
	e.SetExtension("exurl", &url.URL{Scheme: "https", Host: "example.com", Path: "/a b"})
	e.SetExtension("exref", types.URIRef{URL: url.URL{Path: "a/b"}})
	e.SetExtension("extime", time.Date(2020, 2, 29, 1, 2, 3, 4, time.UTC))
	return e
}

// extended returns an event with an extension that no setter has seen.
func extended(v any) event.Event {
	e := full()
	e.Context.(*sdk.EventContextV1).Extensions["odd"] = v
	return e
}

func TestCompare(t *testing.T) {
	for _, test := range []struct {
		name string
		f    filter.Filter
		e    event.Event
		want bool
	}{
		{"specversion", filter.Exact("specversion", "1.0"), full(), true},
		{"id", filter.Exact("id", "17"), full(), true},
		{"source", filter.Exact("source", "https://shop.example.com/orders"), full(), true},
		{"type", filter.Exact("type", "order.placed"), full(), true},
		{"subject", filter.Exact("subject", "customer/4711"), full(), true},
		{"datacontenttype", filter.Exact("datacontenttype", "application/json"), full(), true},
		{"dataschema", filter.Exact("dataschema", "https://example.com/schema"), full(), true},
		{"time", filter.Exact("time", "2026-01-02T03:04:05.00000012Z"), full(), true},
		{"string", filter.Exact("tenant", "acme"), full(), true},
		{"bool", filter.Exact("exbool", "true"), full(), true},
		{"integer", filter.Exact("exint", "-42"), full(), true},
		{"binary", filter.Exact("exbinary", "AAH/"), full(), true},
		{"URL", filter.Exact("exurl", "https://example.com/a%20b"), full(), true},
		{"URL reference", filter.Exact("exref", "a/b"), full(), true},
		{"time extension", filter.Exact("extime", "2020-02-29T01:02:03.000000004Z"), full(), true},
		{"int64", filter.Exact("odd", "7"), extended(int64(7)), true},
		{"whole float", filter.Exact("odd", "7"), extended(7.0), true},
		{"float", filter.Exact("odd", "7"), extended(7.5), false},
		{"NaN", filter.Prefix("odd", "N"), extended(math.NaN()), false},
		{"out of range", filter.Exact("odd", "4294967296"), extended(1 << 32), false},
		{"nil", filter.Prefix("odd", "<"), extended(nil), false},
		{"nil pointer", filter.Prefix("odd", "<"), extended((*url.URL)(nil)), false},
		{"no CloudEvents type", filter.Prefix("odd", "{"), extended(struct{}{}), false},

		{"other value", filter.Exact("type", "order"), full(), false},
		{"other case", filter.Exact("type", "Order.placed"), full(), false},
		{"prefix", filter.Prefix("type", "order."), full(), true},
		{"prefix of all", filter.Prefix("type", "order.placed"), full(), true},
		{"no prefix", filter.Prefix("type", "placed"), full(), false},
		{"too long a prefix", filter.Prefix("type", "order.placed.eu"), full(), false},
		{"suffix", filter.Suffix("type", ".placed"), full(), true},
		{"no suffix", filter.Suffix("type", "order"), full(), false},
		{"missing", filter.Exact("nobody", "x"), full(), false},
		{"empty", filter.Prefix("empty", "x"), full(), false},
		{"missing subject", filter.Prefix("subject", "x"), sdk.New("1.0"), false},
		{"zero event", filter.Exact("type", "order.placed"), event.Event{}, false},
		{"nil context", filter.Exact("type", "order.placed"), event.Event{Context: (*sdk.EventContextV1)(nil)}, false},
		{"version 0.3", filter.Exact("specversion", "0.3"), sdk.New("0.3"), false},

		{"all", filter.All(filter.Exact("tenant", "acme"), filter.Prefix("type", "order.")), full(), true},
		{"not all", filter.All(filter.Exact("tenant", "acme"), filter.Prefix("type", "x")), full(), false},
		{"any", filter.Any(filter.Exact("tenant", "x"), filter.Prefix("type", "order.")), full(), true},
		{"not any", filter.Any(filter.Exact("tenant", "x"), filter.Prefix("type", "x")), full(), false},
		{"not", filter.Not(filter.Exact("tenant", "acme")), full(), false},
		{"not missing", filter.Not(filter.Exact("nobody", "x")), full(), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.f(test.e); got != test.want {
				t.Errorf("matches: %v, want %v", got, test.want)
			}
		})
	}
}

// What a filter compares is what arrives, in either content mode.
func TestComparesWhatArrives(t *testing.T) {
	sent := full()
	header := make(map[string][]string)
	body, err := event.NATS.Encode(sent, header)
	if err != nil {
		t.Fatal(err)
	}
	arrived, err := event.NATS.Decode(header, body)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range arrived.Extensions() {
		if value == "" {
			continue
		}
		f := filter.Exact(name, value.(string))
		if !f(sent) || !f(arrived) {
			t.Errorf("%s as %q matches what is sent: %v, and what arrives: %v; want both", name, value, f(sent), f(arrived))
		}
	}
}

func TestPanics(t *testing.T) {
	yes := filter.Filter(func(event.Event) bool { return true })
	handle := func(context.Context, event.Event) error { return nil }
	for name, test := range map[string]struct {
		f    func()
		want string
	}{
		"no name":          {func() { filter.Exact("", "x") }, `attribute ""`},
		"upper case":       {func() { filter.Prefix("Type", "x") }, `attribute "Type"`},
		"underscore":       {func() { filter.Suffix("data_base64", "x") }, `attribute "data_base64"`},
		"data":             {func() { filter.Exact("data", "x") }, `attribute "data"`},
		"no value":         {func() { filter.Exact("type", "") }, `attribute "type"`},
		"all of none":      {func() { filter.All() }, "All"},
		"any of none":      {func() { filter.Any() }, "Any"},
		"all with nil":     {func() { filter.All(yes, nil) }, "nil"},
		"not nil":          {func() { filter.Not(nil) }, "nil"},
		"where no filter":  {func() { filter.Where(handle, nil) }, "nil"},
		"where no handler": {func() { filter.Where(nil, yes) }, "nil"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "filter: ") || !strings.Contains(text, test.want) {
					t.Errorf("panic is %q, want it to name %s", text, test.want)
				}
			}()
			test.f()
		})
	}
}

// The filters that are given belong to the caller, who may change the slice.
func TestKeepsNothing(t *testing.T) {
	filters := []filter.Filter{filter.Exact("tenant", "acme")}
	all, either := filter.All(filters...), filter.Any(filters...)
	filters[0] = filter.Not(filters[0])
	if !all(full()) || !either(full()) {
		t.Error("a change of the slice changed the filter")
	}
}

func TestWhere(t *testing.T) {
	boom := errors.New("boom")
	handled := 0
	h := filter.Where(func(context.Context, event.Event) error { handled++; return boom }, filter.Exact("tenant", "acme"))
	if err := h(t.Context(), full()); err != boom || handled != 1 {
		t.Errorf("a matching event: %v, handled %d times; want %v, once", err, handled, boom)
	}
	e := full()
	e.SetExtension("tenant", "other")
	if err := h(t.Context(), e); err != nil || handled != 1 {
		t.Errorf("another event: %v, handled %d times; want it acked and not handled", err, handled-1)
	}
}

func TestDoesNotAllocate(t *testing.T) {
	f := filter.All(
		filter.Prefix("type", "order."),
		filter.Exact("tenant", "acme"),
		filter.Not(filter.Suffix("subject", "/0")),
		filter.Any(filter.Exact("nobody", "x"), filter.Exact("datacontenttype", "application/json"), filter.Exact("id", "17")),
		filter.Exact("exbool", "true"),
	)
	e := full()
	if n := testing.AllocsPerRun(100, func() { f(e) }); n != 0 || !f(e) {
		t.Errorf("%v allocations, matches: %v", n, f(e))
	}
}

func BenchmarkFilter(b *testing.B) {
	e := full()
	for _, bench := range []struct {
		name string
		f    filter.Filter
	}{
		{"exact type", filter.Exact("type", "order.placed")},
		{"exact extension", filter.Exact("tenant", "acme")},
		{"prefix source", filter.Prefix("source", "https://shop.")},
		{"exact time", filter.Exact("time", "2026-01-02T03:04:05.00000012Z")},
		{"all of three", filter.All(filter.Prefix("type", "order."), filter.Exact("tenant", "acme"), filter.Not(filter.Exact("subject", "x")))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bench.f(e)
			}
		})
	}
}
