package jetstream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

// TestSentAgainIsTheSame publishes while there is no connection, so that every
// event is made into a message more than once: each arrives as it is.
func TestSentAgainIsTheSame(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{MaxPending: 4})
	l.cut()
	within(t, 5*time.Second, "the end of the connection", func() bool { return !nc.IsConnected() })

	want := make(map[string]string)
	var events []event.Event
	for i := range 20 {
		e := makeEvent(t, fmt.Sprint("type.", i), fmt.Sprint("data ", i))
		if i%2 == 0 {
			e.SetExtension("even", fmt.Sprint(i)) // a header that its neighbours lack
		}
		events = append(events, e)
		want[e.ID()] = e.String()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	published := make(chan error, 1)
	go func() { published <- b.Publish(ctx, events...) }()
	select {
	case err := <-published:
		t.Fatalf("Publish returned %v without a connection", err)
	case <-time.After(100 * time.Millisecond): // it has tried by now
	}
	l.mend(addr)
	if err := <-published; err != nil {
		t.Fatal(err)
	}

	src, err := b.Subscribe(ctx, messaging.Subscription{Name: "s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for range events {
		d, err := src.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got[d.Value.ID()] = d.Value.String()
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what arrived is not what was published (-want +got)\n%s", diff)
	}
}
