package reactor

import (
	"context"
	"sync"
	"testing"
)

// TestPauseAndResumeRace holds the state of a Reactor to whether it receives,
// whoever pauses and resumes it at once.
func TestPauseAndResumeRace(t *testing.T) {
	r := &Reactor{control: newControl(), status: Status{State: Running}}
	r.control.gate.begin(t.Context())
	for range 20_000 {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := r.Pause(context.Background()); err != nil {
					t.Errorf("Pause returned %v", err)
				}
			})
			wg.Go(r.Resume)
		}
		wg.Wait()
		if s := r.Status().State; (s == Paused) != r.control.gate.closed() {
			t.Fatalf("the reactor is %v, and its gate is closed: %v", s, r.control.gate.closed())
		}
	}
}
