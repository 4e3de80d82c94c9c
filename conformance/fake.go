package conformance

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// fake is a broker that has just what the checks of the reactor use: they run
// on it as well, so that a failure tells the reactor's fault from the broker's
// [RUN-10]. Dead letters it drops.
type fake struct {
	mu sync.Mutex
	// Below: under mu.
	log    []event.Event
	queues map[string]*queue
	closed bool
}

// queue is a subscription of a fake.
type queue struct {
	fake  *fake
	sub   messaging.Subscription
	match event.Pattern
	// Below: under fake.mu.
	items   []*item
	changed chan struct{} // closed, and made anew, at each change
	sources []*fakeSource
}

// item is an event that is not done.
type item struct {
	event   event.Event
	seq     uint64
	stored  time.Time
	attempt int
	due     time.Time   // not before that
	holder  *fakeSource // nil: nobody has it
	lost    time.Time   // when the holder loses it
	n       int         // of the delivery
}

func newFake() *fake { return &fake{queues: make(map[string]*queue)} }

func (f *fake) Publish(_ context.Context, events ...event.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return messaging.ErrClosed
	}
	for _, ev := range events {
		f.log = append(f.log, event.Clone(ev))
		for _, q := range f.queues {
			q.add(f.log[len(f.log)-1], len(f.log))
			q.change()
		}
	}
	return nil
}

func (f *fake) Subscribe(_ context.Context, sub messaging.Subscription, _ messaging.Report) (messaging.Source, error) {
	sub, err := sub.Normalize()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, messaging.ErrClosed
	}
	q := f.queues[sub.Name]
	if q == nil {
		match, err := event.ParsePattern(sub.Types...)
		if err != nil {
			return nil, err
		}
		q = &queue{fake: f, sub: sub, match: match, changed: make(chan struct{})}
		f.queues[sub.Name] = q
		for i, ev := range f.log {
			q.add(ev, i+1)
		}
	}
	s := &fakeSource{queue: q, closed: make(chan struct{})}
	q.sources = append(q.sources, s)
	return s, nil
}

func (f *fake) Close() error {
	f.mu.Lock()
	f.closed = true
	var sources []*fakeSource
	for _, q := range f.queues {
		sources = append(sources, q.sources...)
	}
	f.mu.Unlock()
	for _, s := range sources {
		s.Close()
	}
	return nil
}

// add adds an event, if its type matches; mu is held.
func (q *queue) add(ev event.Event, seq int) {
	if !q.match.Match(ev.Type()) {
		return
	}
	q.items = append(q.items, &item{event: ev, seq: uint64(seq), stored: time.Now(), attempt: 1})
}

// change wakes all that wait; mu is held.
func (q *queue) change() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// take hands out an item, or says when to look again; mu is held.
func (q *queue) take(s *fakeSource, now time.Time) (it *item, next time.Time) {
	out := 0
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, it := range q.items {
		if it.holder != nil && !now.Before(it.lost) {
			it.holder = nil
			it.attempt++
		}
		switch {
		case it.holder != nil:
			out++
			sooner(it.lost)
		case now.Before(it.due):
			out++
			sooner(it.due)
		}
	}
	if out >= q.sub.MaxInFlight {
		return nil, next
	}
	for _, it := range q.items {
		if it.holder == nil && !now.Before(it.due) {
			it.holder, it.lost = s, now.Add(q.sub.AckWait)
			it.n++
			return it, next
		}
	}
	return nil, next
}

// fakeSource is a member.
type fakeSource struct {
	queue  *queue
	once   sync.Once
	closed chan struct{}
}

func (s *fakeSource) Receive(ctx context.Context) (*messaging.Delivery, error) {
	q, f := s.queue, s.queue.fake
	for {
		select {
		case <-s.closed:
			return nil, messaging.ErrClosed
		default:
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f.mu.Lock()
		it, next := q.take(s, time.Now())
		if it != nil {
			d := reactor.NewDelivery(event.Clone(it.event), reactor.Info{
				Attempt: it.attempt, MaxAttempts: q.sub.MaxAttempts, Sequence: it.seq, Stored: it.stored,
			}, it.lost, &fakeSettler{s, it, it.n})
			f.mu.Unlock()
			return d, nil
		}
		changed := q.changed
		f.mu.Unlock()
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
		case <-s.closed:
		}
	}
}

func (s *fakeSource) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.queue.fake.mu.Lock()
		defer s.queue.fake.mu.Unlock()
		for _, it := range s.queue.items {
			if it.holder == s {
				it.holder = nil
				it.n++
			}
		}
		s.queue.change()
	})
	return nil
}

// fakeSettler settles one delivery.
type fakeSettler struct {
	source *fakeSource
	item   *item
	n      int
}

func (d *fakeSettler) Settle(_ context.Context, o reactor.Outcome) error {
	q := d.source.queue
	q.fake.mu.Lock()
	defer q.fake.mu.Unlock()
	if !d.held() {
		return reactor.ErrLost
	}
	d.item.holder = nil
	switch o.Result {
	case reactor.Acked, reactor.Rejected:
		q.items = slices.DeleteFunc(q.items, func(it *item) bool { return it == d.item })
	case reactor.Retried:
		d.item.attempt++
		d.item.due = time.Now().Add(o.After)
	}
	q.change()
	return nil
}

func (d *fakeSettler) Extend(context.Context) (time.Time, error) {
	q := d.source.queue
	q.fake.mu.Lock()
	defer q.fake.mu.Unlock()
	if !d.held() {
		return time.Time{}, reactor.ErrLost
	}
	d.item.lost = time.Now().Add(q.sub.AckWait)
	q.change()
	return d.item.lost, nil
}

// held reports whether the delivery still is its source's; mu is held.
func (d *fakeSettler) held() bool {
	return d.item.holder == d.source && d.item.n == d.n && time.Now().Before(d.item.lost)
}
