package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// BenchmarkMemory is what the tests below run; TestBenchmark also with faults.
func BenchmarkMemory(b *testing.B) {
	Benchmark(b, benchmarkHarnesses[os.Getenv("CATCHMENT_BENCHMARK_TEST")])
}

var benchmarkHarnesses = map[string]Harness{
	"":         {Open: func(*testing.T) Broker { return memory.New(nil) }},
	"no open":  {},
	"no room":  {Open: func(*testing.T) Broker { return memory.New(&memory.Options{MaxEvents: 10}) }},
	"no today": {Open: func(t *testing.T) Broker { t.Fatal("no broker today"); return nil }},
	"bad close": {Open: func(*testing.T) Broker {
		return badClose{memory.New(nil)}
	}},
}

type badClose struct{ *memory.Broker }

func (b badClose) Close() error { return errors.Join(b.Broker.Close(), errors.New("does not close")) }

// benchmarkOutput runs BenchmarkMemory in a process of its own.
func benchmarkOutput(t *testing.T, harness, pattern string, flags ...string) (string, error) {
	t.Helper()
	args := append([]string{"-test.run=^$", "-test.short", "-test.benchtime=1x", "-test.bench=^BenchmarkMemory$" + pattern}, flags...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "CATCHMENT_BENCHMARK_TEST="+harness)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestBenchmark(t *testing.T) {
	out, err := benchmarkOutput(t, "", "")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const rate = "ns/event events/s allocs/event B/event"
	want := map[string]string{
		"growth/events=10000":  rate + " fill-ns/event consume-ns/event",
		"growth/events=100000": rate + " fill-ns/event consume-ns/event",
	}
	for _, size := range []string{"256B", "4KiB"} {
		for _, name := range []string{
			"publish/%s/callers=64", "publish/%s/batch=1", "publish/%s/batch=100", "publish/%s/batch=1000",
			"stream/%s/batch=1", "stream/%s/batch=100", "stream/%s/react", "consume/%s/members=1", "consume/%s/members=4",
		} {
			want[fmt.Sprintf(name, size)] = rate
		}
		want["latency/"+size+"/one-in-flight"] = rate + " p50-ns p99-ns p99.9-ns"
		want["pending/"+size+"/heap"] = rate + " B/pending B/held"
	}
	for _, n := range []int{1, 10, 100, 1000} {
		want[fmt.Sprintf("fanout/subscriptions=%d", n)] = "ns/delivery deliveries/s allocs/delivery B/delivery"
		want[fmt.Sprintf("growth/subscriptions=%d", n)] = rate
	}
	for _, name := range []string{"filter/none", "filter/types=1", "filter/types=64", "filter/selects=1%", "redelivery/failed=10%"} {
		want[name] = rate
	}
	for name, figures := range want {
		line := regexp.MustCompile(`(?m)^BenchmarkMemory/` + regexp.QuoteMeta(name) + `(-\d+)?\s.*$`).FindString(out)
		for unit := range strings.FieldsSeq(figures) {
			if !strings.Contains(line, " "+unit) {
				t.Errorf("%s does not report %s: %q", name, unit, line)
			}
		}
		if strings.Contains(line, "ns/op") {
			t.Errorf("%s reports ns/op: %q", name, line)
		}
	}
	if regexp.MustCompile(`events=1000000\b.*ns/event`).MatchString(out) {
		t.Errorf("-short has not left out the million:\n%s", out)
	}
}

func TestBenchmarkFails(t *testing.T) {
	for _, tt := range []struct{ harness, pattern, want string }{
		{"no open", "", "the field Open is nil"},
		{"no room", "/publish/256B/batch=1$", "full"},
		{"no today", "/publish/256B/batch=1$", "no broker today"},
		{"bad close", "/latency/256B", "does not close"},
	} {
		out, err := benchmarkOutput(t, tt.harness, tt.pattern)
		if err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s: %v, want a failure that says %q:\n%s", tt.harness, err, tt.want, out)
		}
	}
}

// The flags of tests are for the test that opens the broker as well.
func TestBenchmarkFlags(t *testing.T) {
	out, err := benchmarkOutput(t, "", "/publish/256B/batch=1$", "-test.count=2", "-test.cpu=1,2", "-test.v")
	if got := strings.Count(out, "ns/event"); err != nil || got != 4 {
		t.Errorf("-count=2 -cpu=1,2: %v, %d results, want 4:\n%s", err, got, out)
	}
}

// drain ends when n events are done, and with the context's error when fewer come.
func TestDrain(t *testing.T) {
	for _, members := range []int{1, 4} {
		t.Run(fmt.Sprintf("members=%d", members), func(t *testing.T) {
			broker := memory.New(nil)
			defer broker.Close()
			var sources []messaging.Source
			for range members {
				src, err := broker.Subscribe(t.Context(), messaging.Subscription{Name: speedName}, nil)
				if err != nil {
					t.Fatal(err)
				}
				sources = append(sources, src)
			}
			publish := func(n int) {
				t.Helper()
				if err := broker.Publish(t.Context(), newFeed(smallData).fill(n).take(n)...); err != nil {
					t.Fatal(err)
				}
			}
			publish(100)
			if err := drain(t.Context(), sources, 100, ack); err != nil {
				t.Errorf("100 of 100: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := drain(ctx, sources, 1, ack); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("one of none: %v, want %v", err, context.DeadlineExceeded)
			}
		})
	}
}

func TestFeed(t *testing.T) {
	for _, size := range []int{smallData, largeData, 1000} {
		f := newFeed(size)
		seen := make(map[string]bool)
		look := func(f *feed, batch int) {
			for f.left() > 0 {
				for _, e := range f.take(batch) {
					seen[e.ID()] = true
				}
			}
		}
		look(f.fill(2*ringSize+17), 1)
		look(f.fill(2*ringSize+17), 100)
		for _, part := range f.fill(ringSize + 17).split(callers) {
			look(part, 1)
		}
		if want := 5*ringSize + 3*17; len(seen) != want {
			t.Errorf("%d ids of %d events", len(seen), want)
		}
		e := f.fill(1).take(1)[0]
		if err := event.Check(e); err != nil {
			t.Error(err)
		}
		if got := len(e.Data()); got != size || !json.Valid(e.Data()) {
			t.Errorf("data of %d bytes, want %d of JSON: %s", got, size, e.Data())
		}
		if len(e.Extensions()) != 3 || e.Subject() == "" || e.Time().IsZero() || e.DataContentType() != "application/json" {
			t.Errorf("not six attributes and three extensions: %v", e)
		}
		if !bytes.Contains(e.Data(), []byte(`{"sku":"A-00001"`)) {
			t.Errorf("no items: %s", e.Data())
		}
	}
}

func TestQuantile(t *testing.T) {
	var sorted []time.Duration
	for i := range 1000 {
		sorted = append(sorted, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 500, 0.99: 990, 0.999: 999, 1: 999} {
		if got := quantile(sorted, q); got != want {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
}

func TestMeter(t *testing.T) {
	m := &meter{unit: "event"}
	var keep []*[64]byte
	m.measure(10, func() {
		for range 10 {
			keep = append(keep, new([64]byte))
		}
		time.Sleep(time.Millisecond) // at least so long, which is to be seen
	})
	if m.events != 10 || m.took < time.Millisecond || m.mallocs < uint64(len(keep)) || m.bytes < 640 {
		t.Errorf("measured %+v", m)
	}
	m.note("B/held", 1)
	m.samples = append(m.samples, 1)
	m.reset()
	if m.events != 0 || m.took != 0 || m.mallocs != 0 || m.extra != nil || m.samples != nil || m.unit != "event" {
		t.Errorf("after a reset: %+v", m)
	}
}
