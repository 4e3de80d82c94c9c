package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveVariable); dir != "" {
		serve(dir)
		return
	}
	os.Exit(m.Run())
}

func startMachine(t *testing.T) *machine {
	t.Helper()
	server, err := startServer(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.stop(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	o := options{rounds: 1, each: time.Nanosecond, match: regexp.MustCompile("")}
	return &machine{options: o, url: server.url, dir: t.TempDir(), progress: io.Discard}
}

func TestMeasureAll(t *testing.T) {
	dir := t.TempDir()
	o := options{
		rounds:  1,
		each:    time.Nanosecond,
		match:   regexp.MustCompile(`^memory/.*/latency$|^codec/|^growth/.*memory/events`),
		growth:  1000,
		table:   filepath.Join(dir, "table.md"),
		picture: filepath.Join(dir, "picture.svg"),
	}
	var out bytes.Buffer
	if err := measureAll(t.Context(), o, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| catchment memory |", "| catchment event.NATS |", "events stored", "not measured"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
	table, err := os.ReadFile(o.table)
	if err != nil || string(table) != out.String() {
		t.Errorf("the file differs from what was printed: %v\n%s", err, table)
	}
	if _, err := os.Stat(o.picture); err != nil {
		t.Error(err)
	}
}
