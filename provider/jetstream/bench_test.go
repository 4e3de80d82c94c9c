package jetstream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

// benchmark returns a broker, and the client's own interface on the same
// connection, over TCP.
func benchmark(b *testing.B) (*jetstream.Broker, natsjs.JetStream) {
	b.Helper()
	srv, err := embedded.Start(b.TempDir(), &embedded.Options{SyncInterval: time.Minute, Host: "127.0.0.1", Port: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = srv.Close() })
	nc, err := jetstream.Connect(srv.URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	broker, err := jetstream.New(b.Context(), nc, jetstream.Config{Stream: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = broker.Close() })
	js, err := natsjs.New(nc, natsjs.WithPublishAsyncMaxPending(4096))
	if err != nil {
		b.Fatal(err)
	}
	return broker, js
}

func benchEvents(b *testing.B, n int) []event.Event {
	b.Helper()
	out := make([]event.Event, n)
	for i := range out {
		e, err := event.New("/bench", "order.placed", strings.Repeat("x", 254))
		if err != nil {
			b.Fatal(err)
		}
		e.SetSubject("subject")
		out[i] = e
	}
	return out
}

func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			broker, _ := benchmark(b)
			events := benchEvents(b, b.N*size)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if err := broker.Publish(b.Context(), events[i*size:(i+1)*size]...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
		})
	}
	b.Run("raw/sync", func(b *testing.B) {
		_, js := benchmark(b)
		body := []byte(strings.Repeat("x", 256))
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			if _, err := js.PublishMsg(b.Context(), rawMessage(i, body)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("raw/async", func(b *testing.B) {
		_, js := benchmark(b)
		body := []byte(strings.Repeat("x", 256))
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			if _, err := js.PublishMsgAsync(rawMessage(i, body), natsjs.WithStallWait(time.Minute)); err != nil {
				b.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
}

func rawMessage(i int, body []byte) *nats.Msg {
	return &nats.Msg{Subject: "bench.order.placed", Data: body, Header: nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {fmt.Sprint(i)}, "ce-source": {"/bench"}, "ce-type": {"order.placed"},
		"ce-time": {"2026-01-01T00:00:00Z"}, "ce-subject": {"subject"}, "ce-datacontenttype": {"application/json"},
		natsjs.MsgIDHeader: {fmt.Sprint(i)},
	}}
}

func BenchmarkConsume(b *testing.B) {
	b.Run("receive and ack", func(b *testing.B) {
		broker, _ := benchmark(b)
		if err := broker.Publish(b.Context(), benchEvents(b, b.N)...); err != nil {
			b.Fatal(err)
		}
		src, err := broker.Subscribe(b.Context(), messaging.Subscription{Name: "s"}, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			d, err := src.Receive(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Ack(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("raw", func(b *testing.B) {
		broker, _ := benchmark(b)
		if err := broker.Publish(b.Context(), benchEvents(b, b.N)...); err != nil {
			b.Fatal(err)
		}
		c, err := broker.Stream().CreateConsumer(b.Context(), natsjs.ConsumerConfig{Durable: "raw", AckPolicy: natsjs.AckExplicitPolicy, MaxAckPending: 1024})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.ResetTimer()
		done, n := make(chan struct{}), 0
		cc, err := c.Consume(func(m natsjs.Msg) {
			_ = m.Ack()
			if n++; n == b.N {
				close(done)
			}
		}, natsjs.PullMaxMessages(512))
		if err != nil {
			b.Fatal(err)
		}
		<-done
		cc.Stop()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
}
