package event_test

import (
	"errors"
	"net/url"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
)

func TestCloneSharesNothing(t *testing.T) {
	make := func() event.Event {
		e := full()
		c := e.Context.(*sdk.EventContextV1)
		c.Extensions["purl"] = &url.URL{Path: "a"}
		c.Extensions["puri"] = &types.URI{URL: url.URL{Path: "a"}}
		c.Extensions["pref"] = &types.URIRef{URL: url.URL{Path: "a"}}
		c.Extensions["ptime"] = pointer(time.Unix(1, 0).UTC())
		c.Extensions["pstamp"] = &types.Timestamp{Time: time.Unix(1, 0).UTC()}
		e.FieldErrors = map[string]error{"a": nil}
		return e
	}
	want, e := make(), make()
	clone := event.Clone(e)
	if diff := cmp.Diff(want, clone); diff != "" {
		t.Fatalf("clone differs (-want +got):\n%s", diff)
	}

	c := context(t, e)
	c.ID, c.Type, c.Source.Path = "x", "x", "x"
	*c.DataContentType, *c.Subject = "x", "x"
	c.Time.Time = time.Time{}
	c.DataSchema.Path = "x"
	c.Extensions["exbinary"].([]byte)[0] = 'x'
	c.Extensions["purl"].(*url.URL).Path = "x"
	c.Extensions["puri"].(*types.URI).Path = "x"
	c.Extensions["pref"].(*types.URIRef).Path = "x"
	*c.Extensions["ptime"].(*time.Time) = time.Time{}
	c.Extensions["pstamp"].(*types.Timestamp).Time = time.Time{}
	c.Extensions["new"] = "x"
	e.DataEncoded[0] = 'x'
	e.FieldErrors["b"] = errors.New("x")
	if diff := cmp.Diff(want, clone); diff != "" {
		t.Errorf("the clone changed with the original (-want +got):\n%s", diff)
	}
}

func TestCloneOfOddEvents(t *testing.T) {
	if diff := cmp.Diff(event.Event{}, event.Clone(event.Event{})); diff != "" {
		t.Errorf("clone of the zero Event (-want +got):\n%s", diff)
	}
	for _, context := range []sdk.EventContext{
		(*sdk.EventContextV1)(nil), (*sdk.EventContextV03)(nil), &sdk.EventContextV1{}, &sdk.EventContextV03{},
		&sdk.EventContextV03{
			ID: "1", Subject: pointer("a"), Time: &types.Timestamp{}, SchemaURL: &types.URIRef{},
			DataContentType: pointer("a/b"), DataContentEncoding: pointer("base64"),
			Extensions: map[string]any{"a": []byte("b"), "c": struct{}{}},
		},
	} {
		e := event.Event{Context: context}
		if diff := cmp.Diff(e, event.Clone(e)); diff != "" {
			t.Errorf("clone differs (-want +got):\n%s", diff)
		}
	}
	for _, test := range invalid {
		if test.name == "extension NaN" || test.name == "extension pointer to itself" {
			continue // not even equal to itself; cmp cannot walk it
		}
		event.Clone(with(test.change))
	}
}
