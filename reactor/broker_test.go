package reactor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// A broker is a source like a subscription with one member: what is retried,
// released or lost comes again, and only so much is in flight. What is due again
// goes before what is new.
type broker struct {
	ackWait     time.Duration // 0: deliveries never time out
	maxInFlight int           // 0: no bound
	maxAttempts int           // 0: no bound
	unsequenced bool          // tells no sequence
	late        []string      // are published, and received, a second after a Receive was told to end

	mu sync.Mutex
	// Below: under mu.
	letters  []*letter
	fresh    int       // the first letter that was never out
	again    []*letter // come again now, in the log's order
	inFlight int
	changed  chan struct{}
	closed   bool
	settled  []string // what was settled, and how, in order
	hangs    bool     // a settle hangs
	errs     []string // what must not happen
	expired  int      // deliveries that nobody kept alive
	left     int      // deliveries that were out at Close
}

// A letter is a value in the log of a broker.
type letter struct {
	value   string
	seq     uint64
	attempt int
	out     *hand // nil: nobody has it
	end     string
	gone    bool // to another member, for ever
}

// A hand is one delivery of a letter.
type hand struct {
	b       *broker
	l       *letter
	attempt int
	timer   *time.Timer
	settled bool
}

func newBroker(ackWait time.Duration, values ...string) *broker {
	b := &broker{ackWait: ackWait, changed: make(chan struct{})}
	b.publish(values...)
	return b
}

func (b *broker) publish(values ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range values {
		b.letters = append(b.letters, &letter{value: v, seq: uint64(len(b.letters) + 1), attempt: 1})
	}
	b.change()
}

// change wakes those who wait. b.mu is held.
func (b *broker) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *broker) Receive(ctx context.Context) (*reactor.Delivery[string], error) {
	for {
		b.mu.Lock()
		if err := ctx.Err(); err != nil {
			b.mu.Unlock()
			return nil, err
		}
		if b.closed {
			b.mu.Unlock()
			return nil, reactor.ErrClosed
		}
		if d := b.next(); d != nil {
			b.mu.Unlock()
			return d, nil
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			if b.late == nil {
				return nil, ctx.Err()
			}
			time.Sleep(time.Second)
			b.publish(b.late...)
			b.late = nil
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.next(), nil
		}
	}
}

// next hands out the next letter. b.mu is held.
func (b *broker) next() *reactor.Delivery[string] {
	var l *letter
	switch {
	case len(b.again) > 0:
		l, b.again = b.again[0], b.again[1:]
	case b.fresh < len(b.letters) && (b.maxInFlight == 0 || b.inFlight < b.maxInFlight):
		l = b.letters[b.fresh]
		b.fresh++
		b.inFlight++
	default:
		return nil
	}
	h := &hand{b: b, l: l, attempt: l.attempt}
	l.out = h
	var deadline time.Time
	if b.ackWait > 0 {
		deadline = time.Now().Add(b.ackWait)
		h.timer = time.AfterFunc(b.ackWait, func() { h.lose(1) })
	}
	info := reactor.Info{Attempt: l.attempt, MaxAttempts: b.maxAttempts}
	if !b.unsequenced {
		info.Sequence = l.seq
	}
	return reactor.NewDelivery(l.value, info, deadline, h)
}

// lose takes the delivery away: it has failed.
func (h *hand) lose(expired int) {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if h.l.out != h {
		return
	}
	h.b.expired += expired
	h.b.settled = append(h.b.settled, h.l.value+" lost")
	h.b.fail(h.l, 0)
}

// lose takes the delivery of a value away, as if another member had it.
func (b *broker) lose(value string) {
	b.mu.Lock()
	h := b.find(value).out
	b.mu.Unlock()
	if h != nil {
		h.lose(0)
	}
}

// hang has settles hang from now on.
func (b *broker) hang() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hangs = true
}

func (b *broker) find(value string) *letter {
	return b.letters[slices.IndexFunc(b.letters, func(l *letter) bool { return l.value == value })]
}

// fail counts a failed delivery. b.mu is held.
func (b *broker) fail(l *letter, after time.Duration) {
	b.takeBack(l)
	if b.maxAttempts > 0 && l.attempt >= b.maxAttempts {
		b.finish(l, "dead")
		return
	}
	l.attempt++
	if l.gone {
		return
	}
	if after <= 0 {
		b.comesAgain(l)
		return
	}
	time.AfterFunc(after, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.comesAgain(l)
	})
}

// takeBack ends the delivery of a letter. b.mu is held.
func (b *broker) takeBack(l *letter) {
	if l.out.timer != nil {
		l.out.timer.Stop()
	}
	l.out = nil
}

// comesAgain makes a letter available. b.mu is held.
func (b *broker) comesAgain(l *letter) {
	i, _ := slices.BinarySearchFunc(b.again, l.seq, func(l *letter, seq uint64) int { return int(l.seq) - int(seq) })
	b.again = slices.Insert(b.again, i, l)
	b.change()
}

// finish ends a letter for good. b.mu is held.
func (b *broker) finish(l *letter, how string) {
	l.end = how
	b.inFlight--
	b.change()
}

func (h *hand) Settle(ctx context.Context, o reactor.Outcome) error {
	b := h.b
	b.mu.Lock()
	if b.hangs {
		b.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	defer b.mu.Unlock()
	if h.settled {
		b.errs = append(b.errs, h.l.value+" was settled twice")
	}
	if h.l.out != h {
		return reactor.ErrLost
	}
	h.settled = true
	b.settled = append(b.settled, h.l.value+" "+o.Result.String())
	switch o.Result {
	case reactor.Retried:
		b.fail(h.l, o.After)
	case reactor.Released:
		b.takeBack(h.l)
		b.comesAgain(h.l)
	default:
		b.takeBack(h.l)
		b.finish(h.l, o.Result.String())
	}
	return nil
}

func (h *hand) Extend(context.Context) (time.Time, error) {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if h.l.out != h {
		return time.Time{}, reactor.ErrLost
	}
	h.timer.Reset(h.b.ackWait)
	return time.Now().Add(h.b.ackWait), nil
}

func (b *broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.letters {
		if l.out != nil {
			b.left++
			b.takeBack(l)
			b.comesAgain(l)
		}
	}
	b.closed = true
	b.change()
	return nil
}

// history is what was settled, and how, in order.
func (b *broker) history() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.settled)
}

// received is how many deliveries are out.
func (b *broker) received() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.letters {
		if l.out != nil {
			n++
		}
	}
	return n
}

// checkAll wants each value to have ended so.
func (b *broker) checkAll(t *testing.T, how string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.letters {
		if l.end != how {
			t.Errorf("%s ended as %q, want %q", l.value, l.end, how)
		}
	}
	for _, err := range b.errs {
		t.Error(err)
	}
}

// keyOf is the key of values like "key/1".
func keyOf(v string) string {
	key, _, _ := strings.Cut(v, "/")
	return key
}

// A journal is what handlers did, in order, with the time since it began.
type journal struct {
	began time.Time

	mu sync.Mutex
	// Below: under mu.
	lines []string
}

func newJournal() *journal { return &journal{began: time.Now()} }

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%v ", time.Since(j.began))+fmt.Sprintf(format, args...))
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// opens opens a source that is there.
func opens(src reactor.Source[string]) func(context.Context) (reactor.Source[string], error) {
	return func(context.Context) (reactor.Source[string], error) { return src, nil }
}
