package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A workload is what a system is asked to do with n events.
type workload struct {
	name   string
	stored bool // before there is a subscription
	most   int  // events, however fast it is
	// offers reports whether the system can do it.
	offers func(l *link) bool
	run    func(ctx context.Context, l *link, f *feed) (sample, error)
}

// callers is how many publish at once where there are several.
const callers = 64

// mostEvents is what a measurement takes at most: for fast systems, the time
// that it takes is shorter instead.
const mostEvents = 100_000

func publishes(l *link) bool { return l.publish != nil }
func both(l *link) bool      { return l.publish != nil && l.subscribe != nil }

// Names of workloads that the targets speak of.
const (
	publishOne   = "publish"
	publishMany  = "publish, 64 callers"
	publishBatch = "publish, batches"
	streamOne    = "stream"
	streamBatch  = "stream, batches"
	consume      = "consume"
	latency      = "latency"
)

var workloads = []workload{
	{publishOne, true, mostEvents, publishes, runPublish(false)},
	{publishMany, true, mostEvents, publishes, runPublishMany},
	{publishBatch, true, mostEvents, publishes, runPublish(true)},
	{streamOne, false, mostEvents, both, runStream(false)},
	{streamBatch, false, mostEvents, both, runStream(true)},
	{consume, true, mostEvents, both, runConsume},
	{latency, false, 1000, both, runLatency},
}

// A sample is what one measurement has shown.
type sample struct {
	events  int
	took    time.Duration
	cpu     time.Duration // of this process
	mallocs uint64
	waits   []time.Duration // of latency, sorted
}

func (s sample) perSecond() float64 { return float64(s.events) / s.took.Seconds() }
func (s sample) perCPU() float64    { return div(float64(s.events), s.cpu.Seconds()) }
func (s sample) allocs() float64    { return float64(s.mallocs) / float64(s.events) }

// clock measures f, after a garbage collection.
func clock(n int, f func() error) (sample, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began, had := time.Now(), cpu()
	err := f()
	took, used := time.Since(began), cpu()-had
	runtime.ReadMemStats(&after)
	return sample{events: n, took: took, cpu: used, mallocs: after.Mallocs - before.Mallocs}, err
}

func runPublish(batches bool) func(context.Context, *link, *feed) (sample, error) {
	return func(ctx context.Context, l *link, f *feed) (sample, error) {
		return clock(f.left(), func() error { return l.publishAll(ctx, f, batches) })
	}
}

func runPublishMany(ctx context.Context, l *link, f *feed) (sample, error) {
	return clock(f.left(), func() error {
		errs := make(chan error, callers)
		var wg sync.WaitGroup
		for _, mine := range f.split(callers) {
			wg.Go(func() { errs <- l.publishAll(ctx, mine, false) })
		}
		wg.Wait()
		close(errs)
		var all []error
		for err := range errs {
			all = append(all, err)
		}
		return errors.Join(all...)
	})
}

// counted is a handle that is content with n.
func counted(n int) handler {
	return func(string) bool { n--; return n > 0 }
}

func runStream(batches bool) func(context.Context, *link, *feed) (sample, error) {
	return func(ctx context.Context, l *link, f *feed) (sample, error) {
		m, err := l.subscribe(ctx)
		if err != nil {
			return sample{}, fmt.Errorf("subscribe: %w", err)
		}
		n := f.left()
		return clock(n, func() error {
			published := make(chan error, 1)
			go func() { published <- l.publishAll(ctx, f, batches) }()
			err := m(ctx, counted(n))
			return errors.Join(err, <-published)
		})
	}
}

func runConsume(ctx context.Context, l *link, f *feed) (sample, error) {
	n := f.left()
	// By many callers, which is the fastest way that all have.
	if _, err := runPublishMany(ctx, l, f); err != nil {
		return sample{}, fmt.Errorf("publish: %w", err)
	}
	return clock(n, func() error {
		m, err := l.subscribe(ctx)
		if err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		return m(ctx, counted(n))
	})
}

// warm is how many events go ahead of those whose latency is measured.
const warm = 10

// longestLatency ends the workload for systems that are slow at it.
const longestLatency = time.Second

// runLatency has one event on its way at a time, and measures from before
// publish to the handler.
func runLatency(ctx context.Context, l *link, f *feed) (sample, error) {
	m, err := l.subscribe(ctx)
	if err != nil {
		return sample{}, fmt.Errorf("subscribe: %w", err)
	}
	arrived, enough := make(chan time.Time, 1), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- m(ctx, func(string) bool {
			arrived <- time.Now()
			select {
			case <-enough:
				return false
			default:
				return true
			}
		})
	}()
	one := func() (time.Duration, error) {
		e := f.take(1)[0]
		began := time.Now()
		if err := l.publish(ctx, e); err != nil {
			return 0, err
		}
		select {
		case at := <-arrived:
			return at.Sub(began), nil
		case err := <-ended:
			ended <- err
			select {
			case at := <-arrived: // it was the last, and both were there
				return at.Sub(began), nil
			default:
				return 0, fmt.Errorf("the member has ended early: %w", cmp.Or(err, ctx.Err(), io.ErrUnexpectedEOF))
			}
		}
	}
	first := min(warm, f.left()/4)
	var waits []time.Duration
	began := time.Now()
	for i := 0; ; i++ {
		last := f.left() == 1 || time.Since(began) > longestLatency
		if last {
			close(enough)
		}
		d, err := one()
		if err != nil {
			return sample{}, err
		}
		if i >= first || last {
			waits = append(waits, d)
		}
		if last {
			break
		}
	}
	took := time.Since(began)
	if err := <-ended; err != nil {
		return sample{}, err
	}
	slices.Sort(waits)
	return sample{events: len(waits), took: took, waits: waits}, nil
}
