package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// TestSameAnswers runs one script on memory and on JetStream and compares what
// they answered, word for word: the double answers like the server.
func TestSameAnswers(t *testing.T) {
	t.Parallel()
	double := memory.New(&memory.Options{Duplicates: window})
	defer double.Close()
	want := script(t, double)
	got := script(t, open(t, start(t), jetstream.Config{}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("memory and JetStream do not answer alike (-memory +jetstream)\n%s", diff)
	}
	t.Logf("%d answers", len(want))
}

// A scripted is a broker whose answers are written down.
type scripted struct {
	t       *testing.T
	broker  messaging.Broker
	admin   messaging.Admin
	answers []string
}

func script(t *testing.T, b messaging.Broker) []string {
	t.Helper()
	admin, err := messaging.AdminOf(b)
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{t: t, broker: b, admin: admin}
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"publish", s.publishing}, {"settle", s.settling}, {"order of redelivery", s.redelivery}, {"strict order", s.strict},
		{"loss", s.losing}, {"dead letters", s.dying}, {"filters and starts", s.selecting}, {"members", s.members},
		{"admin", s.administration},
	} {
		s.say("-- %s", part.name)
		part.run()
	}
	return s.answers
}

func (s *scripted) say(format string, args ...any) {
	s.answers = append(s.answers, fmt.Sprintf(format, args...))
}

// class is what a caller can tell an error by.
func class(err error) string {
	var known []string
	for _, e := range []error{
		messaging.ErrInvalid, messaging.ErrTooLarge, messaging.ErrConflict, messaging.ErrFull, messaging.ErrNotFound,
		messaging.ErrUnknown, messaging.ErrLost, messaging.ErrClosed, reactor.ErrSettled, errors.ErrUnsupported,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			known = append(known, e.Error())
		}
	}
	if err != nil && known == nil {
		return "another error"
	}
	return strings.Join(known, ", ")
}

func (s *scripted) event(id, typ string) event.Event {
	e := makeEvent(s.t, typ, id)
	e.SetID(id)
	return e
}

func (s *scripted) publish(typ string, ids ...string) {
	var events []event.Event
	for _, id := range ids {
		events = append(events, s.event(id, typ))
	}
	s.say("publish %s %v: %s", typ, ids, class(s.broker.Publish(s.t.Context(), events...)))
}

func (s *scripted) subscribe(sub messaging.Subscription) messaging.Source {
	src, err := s.broker.Subscribe(s.t.Context(), sub, func(_ context.Context, err error) { s.t.Logf("report: %v", err) })
	s.say("subscribe %s of %q: %s", sub.Name, sub.DeadLettersOf, class(err))
	return src
}

// receive writes down the next delivery. Where there is none, the script makes no
// sense any more.
func (s *scripted) receive(src messaging.Source) *messaging.Delivery {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	d, err := src.Receive(ctx)
	if err != nil {
		s.t.Fatalf("receive: %v, after\n%s", err, strings.Join(s.answers, "\n"))
	}
	s.say("receive: %s, attempt %d of %d, last %v", d.Value.ID(), d.Info.Attempt, d.Info.MaxAttempts, d.Info.Last())
	if l, ok := messaging.DeadLetterFrom(d.Info); ok {
		s.say("  dead: of %s, %q, after %d attempts, event %v", l.Subscription, l.Reason, l.Attempts, l.Sequence > 0 && !l.Stored.IsZero() && !l.Died.Before(l.Stored))
	}
	return d
}

func (s *scripted) nothing(src messaging.Source) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 300*time.Millisecond)
	defer cancel()
	d, err := src.Receive(ctx)
	if err == nil {
		s.say("receive: %s, where nothing should be", d.Value.ID())
		return
	}
	s.say("receive: %s", class(err))
}

func (s *scripted) settled(verb string, err error) { s.say("%s: %s", verb, class(err)) }

func (s *scripted) close(src messaging.Source) { s.settled("close", src.Close()) }

func (s *scripted) acceptAll(src messaging.Source, n int) {
	for range n {
		s.settled("ack", s.receive(src).Ack(s.t.Context()))
	}
}

func (s *scripted) publishing() {
	s.publish("p", "p1", "p2")
	s.publish("p", "p1", "p3", "p3") // two of them again
	s.publish("p")
	bad := s.event("bad", "p")
	bad.SetExtension("nul", "\x00")
	s.settled("publish of a bad one", s.broker.Publish(s.t.Context(), s.event("good", "p"), bad))
	done, cancel := context.WithCancel(s.t.Context())
	cancel()
	s.settled("publish with a context that is done", s.broker.Publish(done, s.event("late", "p")))
	src := s.subscribe(messaging.Subscription{Name: "publishing", Types: []string{"p"}})
	s.acceptAll(src, 3)
	s.nothing(src)
	s.close(src)
	s.nothing(src)
}

func (s *scripted) settling() {
	ctx := s.t.Context()
	s.publish("s", "s1", "s2", "s3")
	src := s.subscribe(messaging.Subscription{Name: "settling", Types: []string{"s"}, MaxAttempts: 3})
	d := s.receive(src)
	s.settled("retry after two days", d.Retry(ctx, 48*time.Hour))
	s.settled("ack", d.Ack(ctx))
	s.settled("ack again", d.Ack(ctx))
	_, err := d.Extend(ctx)
	s.settled("extend", err)
	d = s.receive(src)
	_, err = d.Extend(ctx)
	s.settled("extend", err)
	s.settled("reject", d.Reject(ctx, "no good"))
	s.settled("release", d.Release(ctx))
	d = s.receive(src)
	for range 2 {
		s.settled("release", d.Release(ctx))
		d = s.receive(src)
	}
	s.settled("retry", d.Retry(ctx, 0))
	d = s.receive(src)
	s.close(src)
	s.settled("ack after close", d.Ack(ctx))
	src = s.subscribe(messaging.Subscription{Name: "settling", Types: []string{"s"}, MaxAttempts: 3})
	s.acceptAll(src, 1)
	s.nothing(src)
	s.close(src)
}

func (s *scripted) redelivery() {
	ctx := s.t.Context()
	s.publish("r", "r1", "r2", "r3", "r4", "r5")
	src := s.subscribe(messaging.Subscription{Name: "redelivery", Types: []string{"r"}})
	var ds []*messaging.Delivery
	for range 5 {
		ds = append(ds, s.receive(src))
	}
	s.settled("retry r3", ds[2].Retry(ctx, 0))
	s.settled("release r1", ds[0].Release(ctx))
	s.settled("retry r5", ds[4].Retry(ctx, 0))
	s.acceptAll(src, 3)
	s.settled("retry r2 later", ds[1].Retry(ctx, 900*time.Millisecond))
	s.settled("retry r4 soon", ds[3].Retry(ctx, 400*time.Millisecond))
	s.nothing(src)
	s.acceptAll(src, 2)
	s.close(src)
}

func (s *scripted) strict() {
	ctx := s.t.Context()
	s.publish("o", "o1", "o2", "o3")
	src := s.subscribe(messaging.Subscription{Name: "strict", Types: []string{"o"}, MaxInFlight: 1, MaxAttempts: 2})
	d := s.receive(src)
	s.nothing(src)
	s.settled("retry", d.Retry(ctx, 500*time.Millisecond))
	s.nothing(src)
	d = s.receive(src)
	s.settled("retry the last", d.Retry(ctx, 0))
	d = s.receive(src)
	s.settled("release", d.Release(ctx))
	s.acceptAll(src, 2)
	s.nothing(src)
	s.close(src)
}

func (s *scripted) losing() {
	s.publish("l", "l1", "l2")
	src := s.subscribe(messaging.Subscription{Name: "losing", Types: []string{"l"}, AckWait: time.Second, MaxAttempts: 2})
	first := s.receive(src)
	second := s.receive(src)
	s.acceptAll(src, 1) // l1, when its time is over
	s.settled("ack of what is lost", first.Ack(s.t.Context()))
	s.acceptAll(src, 1)
	s.settled("retry of what is lost", second.Retry(s.t.Context(), 0))
	s.nothing(src)
	s.close(src)
}

func (s *scripted) dying() {
	ctx := s.t.Context()
	sub := messaging.Subscription{Name: "dying", Types: []string{"d"}, MaxAttempts: 2}
	reader := messaging.Subscription{Name: "reader", DeadLettersOf: "dying", MaxAttempts: 1}
	_, err := s.broker.Subscribe(ctx, messaging.Subscription{Name: "reader", DeadLettersOf: "nobody"}, nil)
	s.settled("subscribe to the dead letters of nobody", err)
	src := s.subscribe(sub)
	s.publish("d", "d1", "d2", "d3")
	s.settled("reject", s.receive(src).Reject(ctx, "bad\nnews \xff"))
	d := s.receive(src)
	s.acceptAll(src, 1)
	s.settled("retry", d.Settle(ctx, reactor.Outcome{Result: reactor.Retried, Reason: "first"}))
	d = s.receive(src)
	s.settled("retry the last", d.Settle(ctx, reactor.Outcome{Result: reactor.Retried, Reason: "second"}))
	s.nothing(src)
	dead := s.subscribe(reader)
	s.acceptAll(dead, 1)
	s.settled("reject a dead letter", s.receive(dead).Reject(ctx, "still"))
	s.nothing(dead)
	s.settled("seek", s.admin.Seek(ctx, reader, messaging.StartFirst()))
	s.acceptAll(dead, 1)
	s.nothing(dead)
	s.close(dead)
	s.close(src)
}

func (s *scripted) selecting() {
	s.publish("f.a", "f1")
	s.publish("f.a.b", "f2")
	s.publish("f", "f3")
	s.publish("F.a", "f4")
	for _, types := range [][]string{{"f.*"}, {"f.>"}, {"f", "f.a", "f.*"}, {"*.a.*"}} {
		src := s.subscribe(messaging.Subscription{Name: fmt.Sprintf("select-%d", len(s.answers)), Types: types})
		for range map[string]int{"f.*": 1, "f.>": 2, "f": 2, "*.a.*": 1}[types[0]] {
			s.acceptAll(src, 1)
		}
		s.nothing(src)
		s.close(src)
	}
	fresh := s.subscribe(messaging.Subscription{Name: "fresh", Start: messaging.StartNew()})
	s.publish("f.new", "f5")
	s.acceptAll(fresh, 1)
	s.nothing(fresh)
	for _, sub := range []messaging.Subscription{
		{Name: "fresh", MaxInFlight: 5}, {Name: "fresh", Types: []string{"f"}}, {Name: "Fresh"}, {Name: ""},
		{Name: "x", Types: []string{"a..b"}}, {Name: "x", AckWait: -1}, {Name: "x", Start: messaging.StartAt(time.Now().Add(time.Hour))},
	} {
		s.subscribe(sub)
	}
	s.close(fresh)
	s.publish("f.new", "f6")
	fresh = s.subscribe(messaging.Subscription{Name: "fresh"})
	s.acceptAll(fresh, 1)
	s.close(fresh)
}

func (s *scripted) members() {
	s.publish("m", "m1", "m2", "m3")
	sub := messaging.Subscription{Name: "members", Types: []string{"m"}, MaxInFlight: 1}
	first := s.subscribe(sub)
	d := s.receive(first)
	second := s.subscribe(sub)
	s.nothing(second)
	s.close(first)
	s.acceptAll(second, 3)
	s.settled("ack of what was given back", d.Ack(s.t.Context()))
	s.close(second)
}

func (s *scripted) administration() {
	ctx := s.t.Context()
	sub := messaging.Subscription{Name: "admin", Types: []string{"a"}, MaxInFlight: 2}
	src := s.subscribe(sub)
	s.publish("a", "a1", "a2", "a3", "a4")
	d := s.receive(src)
	s.settled("seek of nobody", s.admin.Seek(ctx, messaging.Subscription{Name: "nobody"}, messaging.StartNew()))
	s.settled("seek", s.admin.Seek(ctx, sub, messaging.StartFirst()))
	s.settled("ack from before", func() error {
		// A member of a server hears of it a moment later.
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if _, err := d.Extend(ctx); err != nil {
				break
			}
		}
		return d.Ack(ctx)
	}())
	s.acceptAll(src, 2)
	sub.MaxAttempts = 7
	s.settled("update", s.admin.Update(ctx, sub))
	s.subscribe(messaging.Subscription{Name: "admin", Types: []string{"a"}, MaxInFlight: 2})
	s.close(src)
	all, err := s.admin.Subscriptions(ctx)
	s.settled("subscriptions", err)
	for _, st := range all {
		if st.DeadLettersOf == "" {
			s.say("  %s %q, %v, %d in flight at most, %d attempts: %d pending, %d dead", st.Name, st.Types, st.AckWait, st.MaxInFlight, st.MaxAttempts, st.Pending+uint64(st.InFlight), st.DeadLetters)
		}
	}
	n, err := s.admin.Delete(ctx, sub)
	s.say("delete: %d, %s", n, class(err))
	n, err = s.admin.DeleteDeadLetters(ctx, "dying")
	s.say("delete dead letters: %d, %s", n, class(err))
	_, err = s.admin.Undecodable(ctx, "admin")
	s.settled("undecodable of what is deleted", err)
}
