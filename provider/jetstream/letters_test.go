package jetstream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

// TestTwoReadersOfDeadLetters acks one dead letter by two subscriptions.
func TestTwoReadersOfDeadLetters(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 1, nil)
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Reject(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	var ds []*messaging.Delivery
	for _, n := range []string{"x", "y"} {
		r, err := b.Subscribe(t.Context(), messaging.Subscription{Name: n, DeadLettersOf: "s"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, d)
	}
	for i, d := range ds {
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("reader %d: Ack: %v", i, err)
		}
	}
}

// TestForeignAnnotations stores headers in the log that look like a dead letter.
func TestForeignAnnotations(t *testing.T) {
	t.Parallel()
	srv := start(t)
	h := harness(srv, jetstream.Config{})
	b := open(t, srv, jetstream.Config{})
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, func(_ context.Context, err error) { t.Log(err) })
	if err != nil {
		t.Fatal(err)
	}
	dl := (messaging.DeadLetter{Subscription: "x", Reason: "forged", Attempts: 7, Sequence: 9, Stored: time.Now(), Died: time.Now()}).Annotations()
	bad := map[string][]string{}
	good := map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"a"}}
	for k, v := range dl {
		bad["Catchment-"+k] = []string{strings.ReplaceAll(v, " ", "%20")}
		good["Catchment-"+k] = bad["Catchment-"+k]
	}
	h.Inject(t, b, bad, []byte("junk"))
	h.Inject(t, b, good, nil)
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Info.Annotations) > 0 {
		t.Errorf("an event of the log has annotations: %v", d.Info.Annotations)
	}
	var raw []*messaging.DecodeError
	within(t, 10*time.Second, "what does not decode", func() bool {
		raw, err = b.Undecodable(t.Context(), "s")
		return err == nil && len(raw) == 1
	})
	if raw[0].Sequence != 1 {
		t.Errorf("sequence %d, reason %v", raw[0].Sequence, raw[0].Err)
	}
}

// TestLargestDeadLetter buries the largest event there can be, with the longest reason.
func TestLargestDeadLetter(t *testing.T) {
	t.Parallel()
	srv := start(t)
	b := open(t, srv, jetstream.Config{})
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, func(_ context.Context, err error) { t.Logf("%.200s", err.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	fit := func(n int, ext string) bool {
		e := makeEvent(t, strings.Repeat("é", 127), nil)
		e.SetExtension("big", ext)
		if err := e.SetData("application/octet-stream", make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		err := b.Publish(t.Context(), e)
		return err == nil
	}
	ext := ""
	for n := 33000; n > 100; n -= 200 {
		ext = strings.Repeat("é", n/2)
		if fit(10, ext) {
			t.Log("ext", n)
			break
		}
	}
	for n := 1 << 20; n > 100; n -= 256 {
		if fit(n, ext) {
			t.Log("data", n)
			break
		}
	}
	for range 2 {
		d, err := src.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Reject(t.Context(), strings.Repeat("é", 2000)); err != nil {
			t.Fatal(err)
		}
	}
	within(t, 5*time.Second, "two dead letters", func() bool {
		all, err := b.Subscriptions(t.Context())
		return err == nil && all[0].DeadLetters == 2
	})
}

// TestCloseWhileKept closes a member while what it could not decode is stored:
// that is not given back on top, and nothing is stored twice.
func TestCloseWhileKept(t *testing.T) {
	t.Parallel()
	srv := start(t)
	h := harness(srv, jetstream.Config{})
	b := open(t, srv, jetstream.Config{})
	const rounds = 20
	for range 5 {
		h.Inject(t, b, nil, []byte("no event"))
	}
	for i := range rounds {
		sub := messaging.Subscription{Name: fmt.Sprintf("s%d", i)}
		src, err := b.Subscribe(t.Context(), sub, func(context.Context, error) {})
		if err != nil {
			t.Fatal(err)
		}
		received := make(chan struct{})
		go func() {
			defer close(received)
			_, _ = src.Receive(context.Background())
		}()
		within(t, 10*time.Second, "the first to be kept", func() bool {
			raw, err := b.Undecodable(t.Context(), sub.Name)
			return err == nil && len(raw) > i%5
		})
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
		<-received
		raw, err := b.Undecodable(t.Context(), sub.Name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := b.Subscriptions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Name == sub.Name && int(s.Pending)+s.InFlight+len(raw) != 5 {
				t.Errorf("round %d: %d are kept, %d pending, %d in flight, of 5", i, len(raw), s.Pending, s.InFlight)
			}
		}
	}
}
