package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

// result is what a run of the program has told.
type result struct {
	code   int
	output string
	rows   map[string]string // of the table, without the times, by subscription
}

// The columns of the table.
const (
	published = iota
	delivered
	acked
	retried
	rejected
	before
	elsewhere
	twice
	left
)

// columns returns the numbers of a subscription.
func (r result) columns(t *testing.T, name string) (c [left + 1]int) {
	t.Helper()
	fields := strings.Fields(r.rows[name])
	if len(fields) != len(c) {
		t.Fatalf("the table has no %s:\n%s", name, r.output)
	}
	for i, f := range fields {
		c[i], _ = strconv.Atoi(f) // digits
	}
	return c
}

// start runs the program.
func start(ctx context.Context, stdin string, args ...string) result {
	var out bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &out)
	return newResult(code, out.String())
}

var row = regexp.MustCompile(`(?m)^ +(\w+|\w+ redrive)((?: +\d+){9}) +[-\w.µ]+ +[-\w.µ]+$`)

func newResult(code int, output string) result {
	r := result{code, output, make(map[string]string)}
	for _, m := range row.FindAllStringSubmatch(output, -1) {
		r.rows[m[1]] = strings.Join(strings.Fields(m[2]), " ")
	}
	return r
}

// check compares the exit code and the table, whose columns are events,
// delivered, acked, retried, rejected, before, elsewhere, twice and left.
func (r result) check(t *testing.T, code int, rows map[string]string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if d := cmp.Diff(rows, r.rows); d != "" {
		t.Errorf("table (-want +got):\n%s", d)
	}
	if t.Failed() {
		t.Log(r.output)
	}
}

func (r result) contains(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(r.output, w) {
			t.Errorf("the output has no %q:\n%s", w, r.output)
		}
	}
}

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := start(t.Context(), "", "-memory", "-n", "300")
		r.check(t, 0, map[string]string{
			"billing":  "300 306 299 6 1 0 0 0 0",
			"shipping": "299 303 299 4 0 0 0 0 0",
			"audit":    "629 630 629 1 0 0 0 0 0",
		})
		r.contains(t,
			"6 events were published once more",
			`audit has noted 629 events, 30 "order.cancelled", 199 "order.paid.card", 100 "order.paid.invoice", 300 "order.placed"`,
			"billing: dead letter: order.placed ",
			"-00013: amount -3047 is negative",
		)
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

func TestMemoryInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		r := start(ctx, "", "-memory")
		if r.code != 1 {
			t.Errorf("exit code %d, want 1", r.code)
		}
		r.contains(t,
			"   1s  published ",
			"context deadline exceeded: what was begun is finished",
			"billing  ", "failed: not everything was published",
		)
	})
}

// TestDurable has a second run handle the dead letters that a first one left.
func TestDurable(t *testing.T) {
	for _, where := range []string{"-dir", "-ledger"} {
		t.Run(where[1:], func(t *testing.T) {
			t.Parallel()
			testDurable(t, where, t.TempDir())
		})
	}
}

func testDurable(t *testing.T, where, dir string) {
	first := start(t.Context(), "", where, dir, "-n", "100")
	first.check(t, 0, map[string]string{
		"billing":  "100 102 99 2 1 0 0 0 0",
		"shipping": "99 100 99 1 0 0 0 0 0",
		"audit":    "209 209 209 0 0 0 0 0 0",
	})
	first.contains(t, "billing: dead letter: order.placed ")

	again := start(t.Context(), "", where, dir, "-redrive")
	again.check(t, 0, map[string]string{
		"billing":          "0 0 0 0 0 0 0 0 0",
		"billing redrive":  "0 1 1 0 0 1 0 0 0",
		"shipping redrive": "0 0 0 0 0 0 0 0 0",
		"shipping":         "1 1 1 0 0 0 0 0 0",
		"audit":            "1 1 1 0 0 0 0 0 0",
	})
	if strings.Contains(again.output, "dead letter:") {
		t.Errorf("there are dead letters yet:\n%s", again.output)
	}
}

// TestJetStreamInterrupted has a second run handle what a first one left. What
// was stored was handled once by either.
func TestJetStreamInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	code := run(ctx, []string{"-dir", dir}, nil, writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("1s  published")) {
			cancel()
		}
		return out.Write(p)
	}))
	first := newResult(code, out.String())
	second := start(t.Context(), "", "-dir", dir, "-n", "0")
	if first.code != 1 || second.code != 0 {
		t.Errorf("exit codes %d and %d, want 1 and 0", first.code, second.code)
	}
	first.contains(t, "what was begun is finished", "failed: not everything was published")
	handled := make(map[string]int)
	for _, name := range []string{"billing", "shipping", "audit"} {
		a, b := first.columns(t, name), second.columns(t, name)
		handled[name] = a[acked] + a[rejected] + b[acked] + b[rejected]
		if b[left] != 0 {
			t.Errorf("%s: %d events are left", name, b[left])
		}
		t.Logf("%s: %d events were left to the second run", name, b[before])
	}
	// Every order but one was paid, once; and every tenth was cancelled.
	placed := handled["billing"]
	want := map[string]int{"billing": placed, "shipping": placed - 1, "audit": placed + placed - 1 + placed/10}
	if d := cmp.Diff(want, handled); d != "" {
		t.Errorf("events handled (-want +got):\n%s", d)
	}
	if t.Failed() {
		t.Log(first.output, second.output)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestJetStreamDuplicates publishes the same events in two runs. The second
// finds them stored, and handled.
func TestJetStreamDuplicates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t.Context(), "", "-dir", dir, "-events", "testdata/events.jsonl")
	first.check(t, 0, map[string]string{
		"billing":  "3 3 2 0 1 0 0 0 0",
		"shipping": "2 3 2 1 0 0 0 0 0",
		"audit":    "8 8 8 0 0 0 0 0 0",
	})
	second := start(t.Context(), "", "-dir", dir, "-events", "testdata/events.jsonl")
	second.check(t, 0, map[string]string{
		"billing":  "3 0 0 0 0 0 3 0 0",
		"shipping": "0 0 0 0 0 0 0 0 0",
		"audit":    "6 0 0 0 0 0 6 0 0",
	})
	second.contains(t, "elsewhere: 9 were published now, and handled earlier")
}

func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := embedded.Start(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r := start(t.Context(), "", "-dir", dir, "-n", "1")
	r.check(t, 1, map[string]string{})
	r.contains(t, "failed: embedded: "+dir+" is in use")
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t.Context(), "", "-memory", "-events", "testdata/events.jsonl")
		r.check(t, 0, map[string]string{
			"billing":  "3 3 2 0 1 0 0 0 0",
			"shipping": "2 3 2 1 0 0 0 0 0",
			"audit":    "8 8 8 0 0 0 0 0 0",
		})
		r.contains(t,
			`testdata/events.jsonl:4: event "1": CloudEvents has no upper-case letters in names; made lower-case: ["orderNumber" "requestedBy"]`,
			`billing: dead letter: order.placed "web-2", attempt 1: order W-2: amount -1700 is negative`,
		)
	})
}

// TestEventsRefused has one event that is none among those that are.
func TestEventsRefused(t *testing.T) {
	good := func(id string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/s","type":"t"}`, id)
	}
	for _, tc := range []struct {
		name, bad, reason string
	}{
		{"no JSON", "what?", "invalid character 'w'"},
		{"cut off", `{"specversion":"1.0","id":"x`, "invalid character '\\n' in string"},
		{"cut off before a value", `{"specversion":`, "unexpected EOF"},
		{"never closed", `{"specversion":"1.0",`, "invalid character '{'"},
		{"no object", `[1]`, ""},
		{"no id", `{"specversion":"1.0","source":"/s","type":"t"}`, "id"},
		{"two names that differ in case", `{"specversion":"1.0","id":"x","source":"/s","type":"t","aB":"1","ab":"2"}`, "ab"},
		{"a name that is none in lower case either", `{"specversion":"1.0","id":"x","source":"/s","type":"t","a-B":"1"}`, "a-b"},
		{"too large", `{"specversion":"1.0","id":"x","source":"/s","type":"t","data":"` + strings.Repeat("x", messaging.MaxEventSize) + `"}`, "too large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t.Context(), good("1")+"\n\n"+tc.bad+"\n"+good("2")+"\n", "-memory", "-events", "-")
				r.check(t, 1, map[string]string{
					"billing":  "0 0 0 0 0 0 0 0 0",
					"shipping": "0 0 0 0 0 0 0 0 0",
					"audit":    "2 2 2 0 0 0 0 0 0",
				})
				r.contains(t, "stdin:3: refused: ", tc.reason, "failed: 1 refused in stdin")
			})
		})
	}
}

// TestEventsPretty reads values that are not in lines of their own.
func TestEventsPretty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
		const b = "{\n\"specversion\": \"1.0\",\n  \"id\": \"2\",\n\"source\":\"/s\", \"type\":\"t\",\n \"data\":\n{\"a\":\n{}}}"
		r := start(t.Context(), a+a+" "+b+b+"\n\n"+a, "-memory", "-events", "-")
		r.check(t, 0, map[string]string{
			"billing":  "0 0 0 0 0 0 0 0 0",
			"shipping": "0 0 0 0 0 0 0 0 0",
			"audit":    "2 2 2 0 0 0 0 0 0",
		})
		r.contains(t, "3 events were published once more")
	})
}

// TestEventsFail has an input that cannot be read to its end.
func TestEventsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		code := run(t.Context(), []string{"-memory", "-events", "-"}, iotest.ErrReader(errors.New("the cable is out")), &out)
		if code != 1 || !strings.Contains(out.String(), "failed: stdin:1: the cable is out") {
			t.Errorf("exit code %d, want 1; output:\n%s", code, &out)
		}
	})
}

// TestEventsInterrupted has an input that never ends.
func TestEventsInterrupted(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	if code := run(ctx, []string{"-memory", "-events", "-"}, r, &out); code != 1 {
		t.Errorf("exit code %d, want 1; output:\n%s", code, &out)
	}
}

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"-h", 0, "Usage of orders"},
		{"-x", 2, "flag provided but not defined: -x"},
		{"-n many", 2, `invalid value "many" for flag -n`},
		{"-n -1", 2, "-n -1 is negative"},
		{"-memory now", 2, `unexpected argument "now"`},
		{"-memory -nats nats://localhost", 2, "-memory and -nats do not go together"},
		{"-memory -dir x", 2, "-memory and -dir do not go together"},
		{"-ledger x -dir x", 2, "-ledger and -dir do not go together"},
		{"-memory -redrive", 2, "-memory and -redrive do not go together"},
		{"-nats nats://localhost -dir x", 2, "-nats and -dir do not go together"},
		{"-events - -n 3", 2, "-events and -n do not go together"},
		{"-redrive -n 3", 2, "-redrive and -n do not go together"},
		{"-redrive -events -", 2, "-redrive and -events do not go together"},
		{"-memory -events no-such-file", 1, "failed: open no-such-file"},
		{"-nats nats://127.0.0.1:1", 1, "failed: jetstream: connect to nats://127.0.0.1:1"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			r := start(t.Context(), "", strings.Fields(tc.args)...)
			r.check(t, tc.code, map[string]string{})
			r.contains(t, tc.want)
		})
	}
}

// FuzzValues puts anything before a value in a line of its own, which is found.
func FuzzValues(f *testing.F) {
	for _, s := range []string{"", "{}", "{", "[", `{"a":`, `"a`, `"\`, "[{}\n{}", "{}\n\n{", "1 2\n]", "\r\n\t", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, before string) {
		const last = `{"last":0}`
		v := newValues(iotest.OneByteReader(strings.NewReader(before + "\n" + last)))
		var got string
		var at int
		for range len(before) + 2 {
			value, line, err := v.next()
			if err == io.EOF {
				break
			}
			if err != nil && !isBroken(err) {
				t.Fatal(err)
			}
			got, at = string(value), line
		}
		if want := 2 + strings.Count(before, "\n"); got != last || at != want {
			t.Errorf("the last value is %q in line %d, want %q in line %d", got, at, last, want)
		}
	})
}
