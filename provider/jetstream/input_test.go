package jetstream_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

// TestHostileTypes publishes types that reach for other subjects, as subjects
// made of a type alone would have let them.
func TestHostileTypes(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	types := []string{
		"$JS.API.STREAM.DELETE." + b.Stream().CachedInfo().Config.Name,
		"$SYS.REQ.SERVER.PING", "a.*", "a.>", "*", ">", "a..b", ".", ".a", "a.", "a b", "é.ö", "%2E", "%",
		strings.Repeat("x.", 127) + "y",
	}
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "all"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range types {
		e := makeEvent(t, typ, nil)
		if err := b.Publish(t.Context(), e); err != nil {
			t.Errorf("type %q: %v", typ, err)
			continue
		}
		d, err := src.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !event.Equal(e, d.Value) {
			t.Errorf("published\n%v, arrived\n%v", e, d.Value)
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Error(err)
		}
	}
	long := makeEvent(t, "a", nil)
	long.SetType(strings.Repeat("a", 5000))
	if err := b.Publish(t.Context(), long); !errors.Is(err, messaging.ErrInvalid) || !strings.Contains(err.Error(), "type") {
		t.Errorf("a type of 5,000 bytes: %v", err)
	}
	if _, err := b.Stream().Info(t.Context()); err != nil {
		t.Errorf("the stream afterwards: %v", err)
	}
}

func TestHostileValues(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "all"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	crlf := makeEvent(t, "a", nil)
	crlf.SetExtension("note", "a\r\nNats-Msg-Id: b")
	if err := b.Publish(t.Context(), crlf); !errors.Is(err, messaging.ErrInvalid) || !strings.Contains(err.Error(), "note") {
		t.Errorf("CR and LF in an attribute: %v, want ErrInvalid that names it", err)
	}

	status := makeEvent(t, "a", nil)
	status.SetExtension("Status", "404") // the SDK lower-cases it
	nul := makeEvent(t, "a", []byte("\x00\xff\r\n\x00"))
	odd := makeEvent(t, "a", nil)
	odd.SetSubject(` "quoted" 50% é 😀 `)
	odd.SetExtension("binary", []byte{0, 255})
	odd.SetExtension("empty", "")
	for _, e := range []event.Event{status, nul, odd} {
		if err := b.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		d, err := src.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !event.Equal(e, d.Value) {
			t.Errorf("published\n%v, arrived\n%v", e, d.Value)
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestTooLarge refuses an event before the client would, and the connection is
// unharmed.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	fits := makeEvent(t, "a", bytes.Repeat([]byte{'x'}, messaging.MaxEventSize-messaging.ReservedSize-500))
	large := makeEvent(t, "a", bytes.Repeat([]byte{'x'}, messaging.MaxEventSize))
	if err := b.Publish(t.Context(), fits, large); !errors.Is(err, messaging.ErrTooLarge) {
		t.Errorf("Publish: %v, want ErrTooLarge", err)
	}
	if err := b.Publish(t.Context(), fits); err != nil {
		t.Errorf("Publish of what fits: %v", err)
	}
	info, err := b.Stream().Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != 1 {
		t.Errorf("%d events are stored, want 1", info.State.Msgs)
	}
}

func TestForeignStream(t *testing.T) {
	t.Parallel()
	srv := start(t)
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), natsjs.StreamConfig{
		Name: "theirs", Subjects: []string{"theirs.>"}, Retention: natsjs.WorkQueuePolicy, MaxMsgsPerSubject: 1,
	}); err != nil {
		t.Fatal(err)
	}
	_, err = jetstream.New(t.Context(), nc, jetstream.Config{Stream: "theirs"})
	if !errors.Is(err, messaging.ErrConflict) {
		t.Fatalf("New: %v, want ErrConflict", err)
	}
	for _, field := range []string{"Retention", "MaxMsgsPerSubject", "Discard"} {
		if !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("New: %v, want it to name %s", err, field)
		}
	}
	// Subjects that somebody else has.
	if _, err := jetstream.New(t.Context(), nc, jetstream.Config{Stream: "ours", Prefix: "theirs"}); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("New with a prefix of another stream: %v", err)
	}
}

func TestForeignConsumer(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	if _, err := b.Stream().CreateConsumer(t.Context(), natsjs.ConsumerConfig{Durable: "theirs"}); err != nil {
		t.Fatal(err)
	}
	_, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "theirs"}, nil)
	if !errors.Is(err, messaging.ErrConflict) || !strings.Contains(err.Error(), "not made by this provider") {
		t.Errorf("Subscribe: %v", err)
	}

	// Ours, but somebody has changed what the contract rests on.
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "ours"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*natsjs.ConsumerConfig){
		"AckWait":    func(c *natsjs.ConsumerConfig) { c.AckWait = time.Second },
		"MaxDeliver": func(c *natsjs.ConsumerConfig) { c.MaxDeliver = 3 },
		"BackOff": func(c *natsjs.ConsumerConfig) {
			c.BackOff, c.MaxDeliver = []time.Duration{time.Second}, 3
		},
		"MaxAckPending":  func(c *natsjs.ConsumerConfig) { c.MaxAckPending = 3 },
		"HeadersOnly":    func(c *natsjs.ConsumerConfig) { c.HeadersOnly = true },
		"FilterSubjects": func(c *natsjs.ConsumerConfig) { c.FilterSubjects = []string{"nowhere.>"} },
	} {
		c, err := b.Consumer(t.Context(), "ours")
		if err != nil {
			t.Fatal(err)
		}
		good := c.CachedInfo().Config
		bad := good
		change(&bad)
		if _, err := b.Stream().UpdateConsumer(t.Context(), bad); err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		_, err = b.Subscribe(t.Context(), messaging.Subscription{Name: "ours"}, nil)
		names := []string{field}
		if field == "BackOff" {
			names = []string{"AckWait", "MaxDeliver", "BackOff"} // one sets the others
		}
		if !errors.Is(err, messaging.ErrConflict) || !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(err.Error(), n) }) {
			t.Errorf("Subscribe to a consumer whose %s was changed: %v", field, err)
		}
		if _, err := b.Stream().UpdateConsumer(t.Context(), good); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNative(t *testing.T) {
	t.Parallel()
	b := open(t, start(t), jetstream.Config{})
	if err := b.Publish(t.Context(), makeEvent(t, "a.b", "data")); err != nil {
		t.Fatal(err)
	}
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := src.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	msg, ok := d.Info.Native.(natsjs.Msg)
	if !ok {
		t.Fatalf("Info.Native is a %T", d.Info.Native)
	}
	meta, err := msg.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	name := b.Stream().CachedInfo().Config.Name
	if meta.Sequence.Stream != d.Info.Sequence || meta.Consumer != "s" || meta.Stream != name || !meta.Timestamp.Equal(d.Info.Stored) {
		t.Errorf("metadata %+v, info %+v", meta, d.Info)
	}
	if msg.Subject() != name+".a.b" || string(msg.Data()) != `"data"` || msg.Headers().Get("ce-type") != "a.b" || msg.Reply() == "" {
		t.Errorf("message %q %v %q", msg.Subject(), msg.Headers(), msg.Data())
	}
	if err := msg.DoubleAck(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.Consumer(t.Context(), "nobody"); !errors.Is(err, messaging.ErrNotFound) {
		t.Errorf("Consumer that is not there: %v", err)
	}
}
