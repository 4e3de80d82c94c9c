package reactor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

// A fake is a source of strings. It hands out each value once, whatever
// becomes of it, and remembers what was done.
type fake struct {
	ackWait  time.Duration // 0: deliveries never time out
	closeErr error
	eager    bool // hands out what there is though the context has ended

	receiving gauge

	in    chan *settler
	ended chan struct{}
	end   func(error) // makes Receive fail from now on
	err   error

	mu sync.Mutex
	// Below: under mu.
	closed   int
	closedAt time.Time
}

func newFake(ackWait time.Duration) *fake {
	f := &fake{ackWait: ackWait, in: make(chan *settler, 1<<17), ended: make(chan struct{})}
	var once sync.Once
	f.end = func(err error) {
		once.Do(func() {
			f.err = err
			close(f.ended)
		})
	}
	return f
}

// add has the values handed out, each in its first attempt.
func (f *fake) add(values ...string) (added []*settler) {
	for _, v := range values {
		s := &settler{value: v, info: reactor.Info{Attempt: 1}, ackWait: f.ackWait}
		added = append(added, s)
		f.in <- s
	}
	return added
}

// put has a value handed out that the test made itself.
func (f *fake) put(s *settler) *settler {
	s.ackWait = f.ackWait
	f.in <- s
	return s
}

func (f *fake) Receive(ctx context.Context) (*reactor.Delivery[string], error) {
	f.receiving.enter()
	defer f.receiving.leave()
	if !f.eager && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	select {
	case s := <-f.in:
		return s.delivery(), nil
	default:
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.ended:
		return nil, f.err
	case s := <-f.in:
		return s.delivery(), nil
	}
}

func (f *fake) Close() error {
	f.end(reactor.ErrClosed)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	f.closedAt = time.Now()
	return f.closeErr
}

// checkClosed wants the source to have been closed once, at the given time.
func (f *fake) checkClosed(t *testing.T, at time.Time) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != 1 {
		t.Errorf("the source was closed %d times, want once", f.closed)
	}
	if !f.closedAt.Equal(at) {
		t.Errorf("the source was closed at %v, want %v", f.closedAt, at)
	}
}

// A settler settles one delivery of a fake.
type settler struct {
	value   string
	info    reactor.Info
	ackWait time.Duration
	onTry   func(ctx context.Context, try int) error // of a settle; nil: it works
	onBeat  func(ctx context.Context, try int) error // of an extend; nil: it works

	mu sync.Mutex
	// Below: under mu.
	tries   []reactor.Outcome
	triedAt []time.Time
	beats   []time.Time
	settled reactor.Outcome // of the try that worked
}

func (s *settler) delivery() *reactor.Delivery[string] {
	var deadline time.Time
	if s.ackWait > 0 {
		deadline = time.Now().Add(s.ackWait)
	}
	return reactor.NewDelivery(s.value, s.info, deadline, s)
}

func (s *settler) Settle(ctx context.Context, o reactor.Outcome) error {
	s.mu.Lock()
	s.tries = append(s.tries, o)
	s.triedAt = append(s.triedAt, time.Now())
	try := len(s.tries)
	s.mu.Unlock()
	if s.onTry != nil {
		if err := s.onTry(ctx, try); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.settled = o
	s.mu.Unlock()
	return nil
}

func (s *settler) Extend(ctx context.Context) (time.Time, error) {
	began := time.Now()
	s.mu.Lock()
	s.beats = append(s.beats, began)
	try := len(s.beats)
	s.mu.Unlock()
	if s.onBeat != nil {
		if err := s.onBeat(ctx, try); err != nil {
			return time.Time{}, err
		}
	}
	return began.Add(s.ackWait), nil
}

// outcome is how the delivery was settled; zero: it was not.
func (s *settler) outcome() reactor.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// tried and extended are when the settler was called, since the given time.
func (s *settler) tried(since time.Time) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sinceAll(s.triedAt, since)
}

func (s *settler) extended(since time.Time) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sinceAll(s.beats, since)
}

func sinceAll(times []time.Time, since time.Time) (ds []time.Duration) {
	for _, t := range times {
		ds = append(ds, t.Sub(since))
	}
	return ds
}

// checkResult wants each delivery settled so.
func checkResult(t *testing.T, want reactor.Result, settlers ...*settler) {
	t.Helper()
	for _, s := range settlers {
		if got := s.outcome().Result; got != want {
			t.Errorf("%s was settled as %v, want %v", s.value, got, want)
		}
	}
}

// A running is a Run in a goroutine of its own.
type running struct {
	stop  context.CancelFunc
	ended chan struct{}
	err   error
	panic any
	quit  bool // by runtime.Goexit
}

func start(t *testing.T, src reactor.Source[string], h reactor.Handler[string], opts *reactor.Options[string]) *running {
	return startFunc(t, func(ctx context.Context) error { return reactor.Run(ctx, src, h, opts) })
}

// startFunc is start for what else runs.
func startFunc(t *testing.T, run func(context.Context) error) *running {
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		returned := false
		defer func() {
			r.panic = recover()
			r.quit = !returned && r.panic == nil
		}()
		r.err = run(ctx)
		returned = true
	}()
	return r
}

// wait returns what Run did.
func (r *running) wait() error {
	<-r.ended
	return r.err
}

// drain stops Run, which must return nil.
func (r *running) drain(t *testing.T) {
	t.Helper()
	r.stop()
	if err := r.wait(); err != nil || r.panic != nil || r.quit {
		t.Errorf("Run returned %v, panicked with %v, want nil", err, r.panic)
	}
}

// A gauge knows how many are inside and how many ever were at once.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	g.most = max(g.most, g.now)
}

func (g *gauge) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

func (g *gauge) read() (now, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now, g.most
}
