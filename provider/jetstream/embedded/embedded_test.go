package embedded_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

func start(t *testing.T, dir string, opts *embedded.Options) *embedded.Server {
	t.Helper()
	srv, err := embedded.Start(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	return srv
}

func TestKeepsWhatItStored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "if missing")
	for round := range 2 {
		srv := start(t, dir, nil)
		nc, err := srv.Connect()
		if err != nil {
			t.Fatal(err)
		}
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			if _, err := js.AddStream(&nats.StreamConfig{Name: "s"}); err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish("s", []byte("kept")); err != nil {
				t.Fatal(err)
			}
		} else if msg, err := js.GetMsg("s", 1); err != nil || string(msg.Data) != "kept" {
			t.Errorf("after a restart: %v, %v", msg, err)
		}
		nc.Close()
		for range 2 {
			if err := srv.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}
}

func TestOneServerADirectory(t *testing.T) {
	dir := t.TempDir()
	srv := start(t, dir, nil)
	if _, err := embedded.Start(dir, nil); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server: %v", err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, dir, nil)
}

func TestListen(t *testing.T) {
	if url := start(t, t.TempDir(), nil).URL(); url != "" {
		t.Errorf("a server that does not listen has the URL %q", url)
	}
	srv := start(t, t.TempDir(), &embedded.Options{Host: "127.0.0.1", Port: -1, SyncInterval: time.Minute})
	nc, err := jetstream.Connect(srv.URL())
	if err != nil {
		t.Fatalf("connect to %q: %v", srv.URL(), err)
	}
	nc.Close()
}

func TestBadDirectory(t *testing.T) {
	if _, err := embedded.Start("", nil); err == nil {
		t.Error("an empty name")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(file, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file: %v", err)
	}
}
