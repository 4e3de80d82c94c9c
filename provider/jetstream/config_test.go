package jetstream

import (
	"errors"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/messaging"
)

func TestConfigOutOfRange(t *testing.T) {
	for _, tt := range []struct {
		cfg   Config
		names string
	}{
		{Config{Stream: "a.b"}, "Stream"},
		{Config{Stream: "a b"}, "Stream"},
		{Config{Stream: "ä"}, "Stream"},
		{Config{Stream: strings.Repeat("a", 65)}, "Stream"},
		{Config{Prefix: "a..b"}, "Prefix"},
		{Config{Prefix: "a.>"}, "Prefix"},
		{Config{Prefix: "$JS.API"}, "Prefix"},
		{Config{Replicas: -1}, "Replicas"},
		{Config{MaxEvents: -1}, "MaxEvents"},
		{Config{MaxBytes: -1}, "MaxBytes"},
		{Config{MaxAge: -1}, "MaxAge"},
		{Config{MaxAge: time.Minute}, "MaxAge"},
		{Config{Duplicates: time.Millisecond}, "Duplicates"},
		{Config{MaxPending: -1}, "MaxPending"},
	} {
		_, err := tt.cfg.withDefaults()
		if !errors.Is(err, messaging.ErrInvalid) || !strings.Contains(err.Error(), "Config."+tt.names+" is") {
			t.Errorf("%+v: %v, want ErrInvalid that names %s", tt.cfg, err, tt.names)
		}
	}
	if _, err := (Config{}).withDefaults(); err != nil {
		t.Errorf("the zero Config: %v", err)
	}
}

func TestServerVersions(t *testing.T) {
	for _, tt := range []struct {
		version string
		ok      bool
	}{
		{"2.9.10", false},
		{"2.12.8", false},
		{"2.12.9", true},
		{"2.13.0", true},
		{"2.14.0", false},
		{"2.14.1", true},
		{"2.15.3-beta.1", true},
		{"3.0.0", true},
		{"dev", true},
	} {
		err := checkServer(tt.version)
		if (err == nil) != tt.ok {
			t.Errorf("version %s: %v", tt.version, err)
		}
		if err != nil && (!errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), tt.version) || !strings.Contains(err.Error(), "2.12.9")) {
			t.Errorf("version %s: %v: must wrap ErrUnsupported and name both versions", tt.version, err)
		}
	}
}

func TestDifferencesNameTheField(t *testing.T) {
	cfg, err := Config{Stream: "s"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if diff := differences(cfg.stream(), cfg.stream()); diff != nil {
		t.Errorf("the same: %q", diff)
	}
	for field, change := range map[string]func(*natsjs.StreamConfig){
		"Subjects":          func(c *natsjs.StreamConfig) { c.Subjects = []string{"s.a.>"} },
		"Retention":         func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy },
		"Discard":           func(c *natsjs.StreamConfig) { c.Discard = natsjs.DiscardOld },
		"Storage":           func(c *natsjs.StreamConfig) { c.Storage = natsjs.MemoryStorage },
		"Duplicates":        func(c *natsjs.StreamConfig) { c.Duplicates = time.Second },
		"MaxMsgsPerSubject": func(c *natsjs.StreamConfig) { c.MaxMsgsPerSubject = 1 },
		"MaxMsgSize":        func(c *natsjs.StreamConfig) { c.MaxMsgSize = 1000 },
		"NoAck":             func(c *natsjs.StreamConfig) { c.NoAck = true },
		"Sealed":            func(c *natsjs.StreamConfig) { c.Sealed = true },
		"Mirror":            func(c *natsjs.StreamConfig) { c.Mirror = &natsjs.StreamSource{Name: "m"} },
		"SubjectTransform":  func(c *natsjs.StreamConfig) { c.SubjectTransform = &natsjs.SubjectTransformConfig{} },
		"PersistMode":       func(c *natsjs.StreamConfig) { c.PersistMode = natsjs.AsyncPersistMode },
	} {
		have := cfg.stream()
		change(&have)
		if diff := differences(have, cfg.stream()); len(diff) != 1 || !strings.HasPrefix(diff[0], field+" is ") {
			t.Errorf("%s: %q", field, diff)
		}
	}
	asked := cfg
	asked.MaxEvents, asked.MaxBytes, asked.MaxAge = 5, 6, time.Hour
	if diff := differences(cfg.stream(), asked.stream()); len(diff) != 3 {
		t.Errorf("bounds that were asked for: %q", diff)
	}
	if diff := differences(asked.stream(), cfg.stream()); diff != nil {
		t.Errorf("bounds of the owner's: %q", diff)
	}
}

func TestRedact(t *testing.T) {
	got := redact("nats://u:secret@h:1, nats://token@h:2,nats://h:3")
	if strings.Contains(got, "secret") || strings.Contains(got, "token") || !strings.Contains(got, "nats://h:3") {
		t.Errorf("redact: %q", got)
	}
}
