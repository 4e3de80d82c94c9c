package memory_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// header returns the headers of an event of that id and type, as other
// programs write them.
func header(id, typ string) map[string][]string {
	return map[string][]string{"CE-Id": {id}, "ce-source": {"/other"}, "ce-type": {typ}, "ce-specversion": {"1.0"}}
}

// TestInject holds foreign messages to being delivered if they are events and
// reported if not, with the events around them delivered [RCV-5].
func TestInject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src, reports := subscribeReporting(t, b, messaging.Subscription{Name: "s", MaxInFlight: 1})
		typed, typedReports := subscribeReporting(t, b, messaging.Subscription{Name: "typed", Types: []string{"a"}})

		publish(t, b, "before")
		bad := map[string][]string{"ce-type": {"a"}, "x": {"y"}}
		body := []byte("what?")
		want(t, b.Inject(bad, body))
		bad["x"][0], body[0] = "changed", 'W'
		want(t, b.Inject(nil, nil))
		want(t, b.Inject(header("good", "a"), []byte("data")))
		want(t, b.Inject(nil, []byte(`{"specversion":"1.0","id":"json","source":"/other","type":"a"}`)))
		want(t, b.Inject(nil, []byte(`{"specversion":"1.0","id":"`)))
		publish(t, b, "after")

		wantIDs(t, src, "before", "good", "json", "after")
		wantIDs(t, typed, "good", "json")
		if len(*reports) != 3 || len(*typedReports) != 1 {
			t.Fatalf("%d and %d reports, want 3 and 1: %v, %v", len(*reports), len(*typedReports), *reports, *typedReports)
		}
		got, ok := (*reports)[0].(*messaging.DecodeError)
		if !ok || got.Err == nil {
			t.Fatalf("reported %#v, want a *DecodeError with a cause", (*reports)[0])
		}
		got.Err = nil
		wanted := &messaging.DecodeError{
			Subscription: "s", Sequence: 2,
			Header: map[string][]string{"ce-type": {"a"}, "x": {"y"}}, Body: []byte("what?"),
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
	})
}

// TestInjectWhileWaiting holds a Receive that waits to reporting what does not
// decode and to going on waiting.
func TestInjectWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		src, reports := subscribeReporting(t, b, messaging.Subscription{Name: "s"})
		got := make(chan event.Event)
		go func() {
			d, err := src.Receive(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- d.Value
		}()
		for range 3 {
			synctest.Wait()
			want(t, b.Inject(nil, []byte("what?")))
		}
		synctest.Wait()
		if len(*reports) != 3 {
			t.Errorf("%d reports, want 3", len(*reports))
		}
		publish(t, b, "a")
		if e := <-got; e.ID() != "a" {
			t.Errorf("received %s, want a", e.ID())
		}
	})
}

// TestReportIsTheirs changes what was reported: what is kept aside does not change.
func TestReportIsTheirs(t *testing.T) {
	b := memory.New(nil)
	src, reports := subscribeReporting(t, b, messaging.Subscription{Name: "s"})
	want(t, b.Inject(map[string][]string{"x": {"y"}}, []byte("what?")))
	want(t, b.Publish(t.Context(), newEvent(t, "a")))
	_, err := src.Receive(t.Context())
	want(t, err)
	got := (*reports)[0].(*messaging.DecodeError)
	got.Err, got.Body[0], got.Header["x"][0] = nil, 'W', "z"
	kept, err := b.Undecodable(t.Context(), "s")
	want(t, err)
	if len(kept) != 1 || kept[0].Err == nil || string(kept[0].Body) != "what?" || kept[0].Header["x"][0] != "y" {
		t.Errorf("kept aside is %#v, want what was reported", kept)
	}
}

// TestReportMayCallBack holds a report to being free to use the broker: it is
// called with no lock held.
func TestReportMayCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		var src messaging.Source
		src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, func(context.Context, error) {
			want(t, src.Close())
			want(t, b.Publish(t.Context(), newEvent(t, "a")))
		})
		want(t, err)
		want(t, b.Inject(nil, nil))
		_, err = src.Receive(t.Context())
		wantErr(t, err, messaging.ErrClosed)
	})
}

// TestInjectRefusals holds Inject to the bounds of the log and to its end.
func TestInjectRefusals(t *testing.T) {
	b := memory.New(&memory.Options{MaxEvents: 1})
	want(t, b.Inject(nil, nil))
	wantErr(t, b.Inject(nil, nil), messaging.ErrFull)
	want(t, b.Close())
	wantErr(t, b.Inject(nil, nil), messaging.ErrClosed)
}
