package conformance

import (
	"testing"

	"github.com/catchment-events/catchment/event"
)

func testEvent(t *testing.T) event.Event {
	t.Helper()
	e, err := event.New("/test", "test.happened", nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
