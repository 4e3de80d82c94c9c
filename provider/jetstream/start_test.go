package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
)

func TestServerDownAtStart(t *testing.T) {
	t.Parallel()
	l := newLink(t, "")
	nc := l.connect(t, nats.RetryOnFailedConnect(true))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := jetstream.New(ctx, nc, jetstream.Config{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no connection to a server") {
		t.Errorf("New without a server: %v", err)
	}

	_, addr := listen(t, t.TempDir())
	l.mend(addr)
	b := broker(t, nc, jetstream.Config{})
	if err := b.Publish(t.Context(), makeEvent(t, "a", nil)); err != nil {
		t.Error(err)
	}
}

// TestLostAtStart breaks the connection under New and Subscribe, as a server that
// restarts does: what they ask, or the answer, is lost with it.
func TestLostAtStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ call, lost string }{
		{"New", "$JS.API.STREAM.INFO.catchment "},
		{"New", "$JS.API.STREAM.CREATE.catchment "},
		{"New", "stream_create_response"},
		{"New", "$JS.API.STREAM.INFO.catchment_DEAD "},
		{"New", "$JS.API.STREAM.CREATE.catchment_DEAD "},
		{"Subscribe", "$JS.API.STREAM.MSG.GET."},
		{"Subscribe", "$JS.API.CONSUMER.INFO."},
		{"Subscribe", "$JS.API.CONSUMER.CREATE."},
		{"Subscribe", "consumer_create_response"},
	} {
		t.Run(tt.call+"/"+strings.Trim(tt.lost, "$ ."), func(t *testing.T) {
			t.Parallel()
			_, addr := listen(t, t.TempDir())
			l := newLink(t, addr)
			nc := l.connect(t)
			if tt.call == "New" {
				l.lose(tt.lost)
			}
			b := broker(t, nc, jetstream.Config{})
			if tt.call == "Subscribe" {
				l.lose(tt.lost)
			}
			src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "all"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n := nc.Stats().Reconnects; n != 1 {
				t.Errorf("the connection broke %d times, want once", n)
			}
			want := makeEvent(t, "a", nil)
			if err := b.Publish(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			d, err := src.Receive(t.Context())
			if err != nil || d.Value.ID() != want.ID() {
				t.Errorf("received %v, %v; want event %s", d, err, want.ID())
			}
		})
	}
}

// TestConnectErrors has no credentials in Connect's errors, whatever the URL is
// like [SEC-2].
func TestConnectErrors(t *testing.T) {
	for _, url := range []string{
		"nats://user:s3cret@bad host:4222",
		"nats://user:s3cret@127.0.0.1:port",
		"nats://user:s3cret%zz@127.0.0.1:1",
		"user:s3cret@127.0.0.1:port",
		"user:s3cret@127.0.0.1:1",
		"s3cret@127.0.0.1:1",
		"nats://s3cret@127.0.0.1:1",
		"nats://user:s3cret@127.0.0.1:1, nats://user:s3cret@[::1:1",
		"foo://user:s3cret@127.0.0.1:1",
		"nats://user:s3c,ret@127.0.0.1:1",
		"ws://user:s3cret@127.0.0.1:1,nats://127.0.0.1:1",
	} {
		nc, err := jetstream.Connect(url)
		if err == nil {
			nc.Close()
			t.Errorf("connected to %s", url)
		} else if strings.Contains(err.Error(), "s3c") || strings.Contains(err.Error(), "ret@") {
			t.Errorf("Connect(%q): %v", url, err)
		}
	}
}

// TestSubscribeAndClose closes a broker under a Subscribe that waits for the
// connection.
func TestSubscribeAndClose(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, t.TempDir())
	l := newLink(t, addr)
	nc := l.connect(t)
	b := broker(t, nc, jetstream.Config{})
	l.cutOff(t, nc)
	subscribed := make(chan error, 1)
	go func() {
		_, err := b.Subscribe(context.WithoutCancel(t.Context()), messaging.Subscription{Name: "s"}, nil)
		subscribed <- err
	}()
	time.Sleep(100 * time.Millisecond) // it waits by now; if it has not begun, it is refused
	_ = b.Close()
	select {
	case err := <-subscribed:
		if !errors.Is(err, messaging.ErrClosed) {
			t.Errorf("Subscribe: %v, want ErrClosed", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Subscribe waits on, though its broker is closed")
	}
}

// TestServerTooOld speaks for a server of version 2.9.10, which New must refuse
// before it asks it for anything.
func TestServerTooOld(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "INFO {\"server_id\":\"old\",\"version\":\"2.9.10\",\"proto\":1,\"headers\":true,\"max_payload\":1048576,\"jetstream\":true}\r\n")
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if strings.Contains(string(buf[:n]), "PING") {
				fmt.Fprintf(c, "PONG\r\n")
			}
		}
	}()
	nc, err := jetstream.Connect("nats://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, err = jetstream.New(t.Context(), nc, jetstream.Config{})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "2.9.10") || !strings.Contains(err.Error(), "2.12.9") {
		t.Errorf("New on a server of version 2.9.10: %v, want an error that names both versions", err)
	}
}
