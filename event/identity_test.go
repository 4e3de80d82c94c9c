package event_test

import (
	"testing"

	"github.com/catchment-events/catchment/event"
)

func TestAppendIdentity(t *testing.T) {
	for name, change := range valid {
		e := with(change)
		if got, want := string(event.AppendIdentity([]byte("x"), e)), "x"+e.Source()+"\x00"+e.ID(); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := event.AppendIdentity(nil, event.Event{}); got != nil {
		t.Errorf("the zero Event: got %q", got)
	}
}
