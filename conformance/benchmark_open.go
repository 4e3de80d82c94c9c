package conformance

import (
	"runtime"
	"sync"
	"testing"
)

// open returns an empty broker, and done, which closes it and runs what the
// harness left to t.Cleanup.
//
// A Harness speaks to a testing.T, and a benchmark has none. So the broker is
// opened by a test that is run here and lasts until done.
func (s *speed) open() (Broker, func()) {
	s.b.Helper()
	var (
		procs  = runtime.GOMAXPROCS(0)
		opened = make(chan Broker, 1)
		done   = make(chan struct{})
		ended  = make(chan struct{})
		first  sync.Once // with -count and -cpu the test is run more than once
	)
	test := func(t *testing.T) {
		first.Do(func() {
			runtime.GOMAXPROCS(procs) // what -cpu asks for first may be something else
			opened <- s.h.Open(t)
			<-done
		})
	}
	go func() {
		defer close(ended)
		always := func(_, _ string) (bool, error) { return true, nil }
		testing.RunTests(always, []testing.InternalTest{{Name: s.b.Name(), F: test}})
		runtime.GOMAXPROCS(procs)
	}()
	var broker Broker
	select {
	case broker = <-opened:
	case <-ended:
		select {
		case broker = <-opened:
		default:
		}
	}
	if broker == nil {
		s.b.Fatal("conformance: Harness.Open returned no broker (-skip must not be set)")
	}
	closed := sync.OnceFunc(func() {
		if err := broker.Close(); err != nil {
			s.b.Errorf("close: %v", err)
		}
		close(done)
		<-ended
	})
	s.b.Cleanup(closed)
	return broker, closed
}
