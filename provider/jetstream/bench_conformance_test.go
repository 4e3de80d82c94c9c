package jetstream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

// BenchmarkConformance measures over TCP, beside a server in the process that
// syncs once a minute; each broker has a stream of its own.
func BenchmarkConformance(b *testing.B) {
	srv, err := embedded.Start(b.TempDir(), &embedded.Options{SyncInterval: time.Minute, Host: "127.0.0.1", Port: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	conformance.Benchmark(b, conformance.Harness{Open: func(t *testing.T) conformance.Broker {
		nc, err := jetstream.Connect(srv.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		name := fmt.Sprintf("speed-%d", streams.Add(1))
		broker, err := jetstream.New(t.Context(), nc, jetstream.Config{Stream: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // the disk is not for all rounds together
			js := client(t, srv)
			for _, stream := range []string{name, name + "_DEAD"} {
				if err := js.DeleteStream(context.Background(), stream); err != nil {
					t.Error(err)
				}
			}
		})
		return broker
	}})
}
