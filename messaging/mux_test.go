package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// ofType returns an event of the type.
func ofType(typ string) event.Event {
	var e event.Event
	e.SetSpecVersion("1.0")
	e.SetID("1")
	e.SetSource("/test")
	e.SetType(typ)
	return e
}

// recorder is a Mux whose handlers note the pattern that they were registered
// for, and "" for unknown types.
type recorder struct {
	*messaging.Mux
	called string
}

func newRecorder() *recorder {
	r := new(recorder)
	r.Mux = messaging.NewMux(r.note(""))
	return r
}

func (r *recorder) note(pattern string) messaging.Handler {
	return func(context.Context, event.Event) error { r.called = pattern; return nil }
}

// handle registers a handler for the pattern, and returns what that panics with.
func (r *recorder) handle(pattern string) (panics string) {
	return panicOf(func() { r.Handle(pattern, r.note(pattern)) })
}

func (r *recorder) dispatch(t *testing.T, typ string) (pattern string) {
	t.Helper()
	r.called = "nothing"
	if err := r.Dispatch(t.Context(), ofType(typ)); err != nil {
		t.Errorf("dispatch of %q: %v", typ, err)
	}
	return r.called
}

// panicOf returns the text that f panics with, and "" if it does not.
func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

func TestMuxMostSpecific(t *testing.T) {
	patterns := []string{">", "order.>", "order.*", "order.placed", "order.*.eu", "order.vip.eu", "*"}
	for range 20 {
		m := newRecorder()
		for _, i := range rand.Perm(len(patterns)) {
			if text := m.handle(patterns[i]); text != "" {
				t.Fatal(text)
			}
		}
		for typ, want := range map[string]string{
			"order":           "*",
			"invoice.sent":    ">",
			"order.placed":    "order.placed",
			"order.Placed":    "order.*",
			"order.":          "order.*",
			"order.*":         "order.*",
			"order.a.b":       "order.>",
			"order.a.eu":      "order.*.eu",
			"order.vip.eu":    "order.vip.eu",
			"order.vip.eu.at": "order.>",
			"orders.placed":   ">",
			">":               "*",
			"..":              ">",
		} {
			if got := m.dispatch(t, typ); got != want {
				t.Errorf("%q went to the handler of %q, want that of %q", typ, got, want)
			}
		}
	}
}

func TestMuxUnknownType(t *testing.T) {
	m := newRecorder()
	m.handle("order.placed")
	m.handle("invoice.*")
	for _, typ := range []string{"order", "order.placed.eu", "Order.placed", "invoice", "invoice.a.b"} {
		if got := m.dispatch(t, typ); got != "" {
			t.Errorf("%q went to the handler of %q, want that of unknown types", typ, got)
		}
	}
	if err := m.Dispatch(t.Context(), event.Event{}); err != nil || m.called != "" {
		t.Errorf("the zero event went to the handler of %q: %v", m.called, err)
	}
}

func TestMuxReturnsWhatTheHandlerDoes(t *testing.T) {
	boom := errors.New("boom")
	m := messaging.NewMux(messaging.AckUnknown)
	fail := func(context.Context, event.Event) error { return boom }
	m.Handle("a", fail)
	m.Handle("b.*", fail)
	for _, typ := range []string{"a", "b.c"} {
		if err := m.Dispatch(t.Context(), ofType(typ)); err != boom {
			t.Errorf("dispatch of %q returned %v, want %v", typ, err, boom)
		}
	}
}

func TestMuxPanics(t *testing.T) {
	h := messaging.AckUnknown
	for name, test := range map[string]struct {
		f    func(m *messaging.Mux)
		want []string
	}{
		"no fate for unknown types": {func(*messaging.Mux) { messaging.NewMux(nil) }, []string{"NewMux", "AckUnknown", "RejectUnknown", "RetryUnknown"}},
		"nil handler":               {func(m *messaging.Mux) { m.Handle("a", nil) }, []string{`"a"`, "nil"}},
		"malformed":                 {func(m *messaging.Mux) { m.Handle("a..b", h) }, []string{`"a..b"`, "empty token"}},
		"duplicate":                 {func(m *messaging.Mux) { m.Handle("z", h); m.Handle("z", h) }, []string{`"z"`, "already"}},
		"duplicate with wildcards":  {func(m *messaging.Mux) { m.Handle("z.*", h); m.Handle("z.*", h) }, []string{`"z.*"`, "already"}},
		"conflict": {func(m *messaging.Mux) { m.Handle("order.*.eu", h); m.Handle("order.vip.>", h) },
			[]string{`pattern "order.vip.>" conflicts with pattern "order.*.eu"`, `both match type "order.vip.eu"`, "neither is more specific"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := panicOf(func() { test.f(messaging.NewMux(h)) })
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("panic is %q, want it to say %s", text, want)
				}
			}
		})
	}
}

// A pattern that was refused is as if it had not been there.
func TestMuxAfterPanic(t *testing.T) {
	m := newRecorder()
	m.handle("a.*")
	if m.handle("*.b") == "" {
		t.Fatal("a.* and *.b do not conflict")
	}
	if got := m.dispatch(t, "z.b"); got != "" {
		t.Errorf("z.b went to the handler of %q", got)
	}
	if diff := cmp.Diff([]string{"a.*"}, m.Types()); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

func TestMuxTypes(t *testing.T) {
	for _, test := range []struct{ patterns, want string }{
		{"", ""},
		{"b a", "a b"},
		{"order.placed order.*", "order.*"},
		{"order.placed order.* order.> invoice.sent", "invoice.sent order.>"},
		{"a.b a.b.c a.*", "a.* a.b.c"},
		{"* *.* a", "* *.*"},
		{"> * a.b", ">"},
	} {
		m := newRecorder()
		for _, pattern := range strings.Fields(test.patterns) {
			m.handle(pattern)
		}
		if got := strings.Join(m.Types(), " "); got != test.want {
			t.Errorf("types of %q are %q, want %q", test.patterns, got, test.want)
		}
	}
}

// words returns the sequences of up to n of the tokens, dots between them.
func words(n int, tokens ...string) iter.Seq[string] {
	return func(yield func(string) bool) {
		level := []string{""}
		for range n {
			var next []string
			for _, word := range level {
				for _, token := range tokens {
					next = append(next, word+token+".")
					if !yield(word + token) {
						return
					}
				}
			}
			level = next
		}
	}
}

// A world is every pattern of up to three of a few tokens, and of every type of
// up to four tokens an event. The c stands for tokens that no pattern has, and
// four tokens for more than a pattern has.
type world struct {
	patterns []string
	events   map[string]event.Event     // by type
	matched  map[string]map[string]bool // by pattern and type
}

func newWorld() world {
	w := world{events: make(map[string]event.Event), matched: make(map[string]map[string]bool)}
	for typ := range words(4, "a", "b", "c") {
		w.events[typ] = ofType(typ)
	}
	for pattern := range words(3, "a", "b", "*", ">") {
		p, err := event.ParsePattern(pattern)
		if err != nil {
			continue
		}
		w.patterns = append(w.patterns, pattern)
		w.matched[pattern] = make(map[string]bool)
		for typ := range w.events {
			if p.Match(typ) {
				w.matched[pattern][typ] = true
			}
		}
	}
	return w
}

func (w world) includes(p, q string) bool {
	for typ := range w.matched[q] {
		if !w.matched[p][typ] {
			return false
		}
	}
	return true
}

func (w world) overlap(p, q string) bool {
	for typ := range w.matched[q] {
		if w.matched[p][typ] {
			return true
		}
	}
	return false
}

// dispatchAll holds m to the most specific of the patterns, for every type.
func (w world) dispatchAll(t *testing.T, m *recorder, patterns ...string) {
	t.Helper()
	for typ, e := range w.events {
		want := ""
		for _, p := range patterns {
			if w.matched[p][typ] && (want == "" || w.includes(want, p)) {
				want = p
			}
		}
		m.called = "nothing"
		if err := m.Dispatch(t.Context(), e); err != nil || m.called != want {
			t.Errorf("with %s, %s went to the handler of %q, want %q", patterns, typ, m.called, want)
		}
	}
}

// TestMuxRelations compares with brute force for every two patterns.
func TestMuxRelations(t *testing.T) {
	w := newWorld()
	example := regexp.MustCompile(`both match type "(.*?)"`)
	for _, p := range w.patterns {
		for _, q := range w.patterns {
			if p == q {
				continue
			}
			m := newRecorder()
			m.handle(p)
			text := m.handle(q)
			if conflict := w.overlap(p, q) && !w.includes(p, q) && !w.includes(q, p); conflict != (text != "") {
				t.Errorf("%s and %s conflict: %v, want %v", p, q, !conflict, conflict)
			}
			if text != "" {
				if both := example.FindStringSubmatch(text); both == nil || !mustMatch(p, both[1]) || !mustMatch(q, both[1]) {
					t.Errorf("the example is not one of both: %s", text)
				}
				continue
			}
			want := []string{p, q}
			switch {
			case w.includes(p, q):
				want = []string{p}
			case w.includes(q, p):
				want = []string{q}
			}
			slices.Sort(want)
			if got := m.Types(); !slices.Equal(got, want) {
				t.Errorf("types of %s and %s are %s, want %s", p, q, got, want)
			}
			w.dispatchAll(t, m, p, q)
		}
	}
}

func mustMatch(pattern, typ string) bool {
	p, err := event.ParsePattern(pattern)
	if err != nil {
		panic(err)
	}
	return p.Match(typ)
}

// TestMuxOrder holds a Mux of many patterns to the most specific one, whatever
// order they were registered in.
func TestMuxOrder(t *testing.T) {
	w := newWorld()
	for range 50 {
		m := newRecorder()
		var accepted []string
		for _, i := range rand.Perm(len(w.patterns))[:20] {
			if m.handle(w.patterns[i]) == "" {
				accepted = append(accepted, w.patterns[i])
			}
		}
		w.dispatchAll(t, m, accepted...)
	}
}

func TestMuxDoesNotAllocate(t *testing.T) {
	m := manyRoutes()
	ctx := t.Context()
	for _, typ := range []string{"com.example.t3", "org.t3.a.b", "net.x.s3", "nobody.knows"} {
		e := ofType(typ)
		if n := testing.AllocsPerRun(100, func() { _ = m.Dispatch(ctx, e) }); n != 0 {
			t.Errorf("dispatch of %q: %v allocations", typ, n)
		}
	}
}

// manyRoutes returns a Mux of 48 patterns.
func manyRoutes() *messaging.Mux {
	m := messaging.NewMux(messaging.AckUnknown)
	for i := range 16 {
		m.Handle(fmt.Sprintf("com.example.t%d", i), messaging.AckUnknown)
		m.Handle(fmt.Sprintf("org.t%d.>", i), messaging.AckUnknown)
		m.Handle(fmt.Sprintf("net.*.s%d", i), messaging.AckUnknown)
	}
	return m
}

func BenchmarkDispatch(b *testing.B) {
	m := manyRoutes()
	for name, typ := range map[string]string{"exact": "com.example.t3", "wildcard": "net.x.s3", "unknown": "nobody.knows"} {
		b.Run(name, func(b *testing.B) {
			e := ofType(typ)
			b.ReportAllocs()
			for b.Loop() {
				_ = m.Dispatch(b.Context(), e)
			}
		})
	}
}

// A oneEvent is a source of one event, and notes how it is settled.
type oneEvent struct {
	e       event.Event
	taken   bool
	outcome reactor.Outcome
}

func (s *oneEvent) Receive(context.Context) (*messaging.Delivery, error) {
	if s.taken {
		return nil, messaging.ErrClosed
	}
	s.taken = true
	return reactor.NewDelivery(s.e, reactor.Info{Attempt: 1}, time.Time{}, s), nil
}

func (s *oneEvent) Close() error { return nil }

func (s *oneEvent) Settle(_ context.Context, o reactor.Outcome) error { s.outcome = o; return nil }

func (s *oneEvent) Extend(context.Context) (time.Time, error) { return time.Time{}, nil }

// settled returns how a reactor settles the event with the handler.
func settled(t *testing.T, e event.Event, h messaging.Handler) reactor.Outcome {
	t.Helper()
	s := &oneEvent{e: e}
	if err := reactor.Run(t.Context(), s, h, nil); !errors.Is(err, messaging.ErrClosed) {
		t.Fatal(err)
	}
	return s.outcome
}

func TestUnknownFates(t *testing.T) {
	for _, test := range []struct {
		name   string
		fate   messaging.Handler
		typ    string
		want   reactor.Result
		reason string
	}{
		{"ack", messaging.AckUnknown, "order.placed", reactor.Acked, ""},
		{"reject", messaging.RejectUnknown, "order.placed", reactor.Rejected, `messaging: no handler for type "order.placed"`},
		{"retry", messaging.RetryUnknown, "order.placed", reactor.Retried, `messaging: no handler for type "order.placed"`},
		{"control characters", messaging.RejectUnknown, "a\nb", reactor.Rejected, `messaging: no handler for type "a\nb"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := settled(t, ofType(test.typ), messaging.NewMux(test.fate).Dispatch)
			if o.Result != test.want || o.Reason != test.reason {
				t.Errorf("settled by %v with reason %q, want %v, %q", o.Result, o.Reason, test.want, test.reason)
			}
		})
	}
}
