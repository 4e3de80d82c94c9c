package reactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// A Group runs reactors together: one service.
type Group struct {
	// Reactors start in this order, each when the one before has opened its
	// source, and drain in this order, one after another.
	Reactors     []*Reactor
	DrainTimeout time.Duration // of all together; default 30 s
	Started      func()        // is called when all have opened theirs
}

// Run runs the reactors until ctx ends, all have finished, or one fails; then
// it drains the others. It returns the errors of those that failed, the first
// one first. A handler's panic is one of Run, after the drain [RUN-6].
func (g *Group) Run(ctx context.Context) error {
	failed, fail := context.WithCancel(ctx)
	defer fail()
	var members []*member
	for _, r := range g.Reactors {
		if failed.Err() != nil {
			break
		}
		m := startMember(ctx, r, fail)
		members = append(members, m)
		select {
		case <-m.opened:
		case <-m.ended:
		case <-failed.Done():
		}
	}
	if g.Started != nil && failed.Err() == nil {
		g.started(members)
	}
	for _, m := range members {
		select {
		case <-m.ended:
		case <-failed.Done():
		}
	}
	return drain(members, g.DrainTimeout)
}

// started calls Started, and drains the members if that does not return.
func (g *Group) started(members []*member) {
	returned := false
	defer func() {
		if !returned {
			_ = drain(members, g.DrainTimeout)
		}
	}()
	g.Started()
	returned = true
}

// drain ends the members, one after another, and returns what Run does.
func drain(members []*member, timeout time.Duration) error {
	if timeout <= 0 {
		timeout = defaultDrainTimeout
	}
	deadline := time.AfterFunc(timeout, func() {
		for _, m := range members {
			m.stop()
			m.reactor.control.abort()
		}
	})
	defer deadline.Stop()
	for _, m := range members {
		m.stop()
		<-m.ended
	}
	byTime := slices.Clone(members)
	slices.SortStableFunc(byTime, func(a, b *member) int { return a.at.Compare(b.at) })
	var errs []error
	exited := false
	for _, m := range byTime {
		if m.panicked != nil { // also when another had failed before
			panic(m.panicked)
		}
		exited = exited || m.exited
		errs = append(errs, m.err)
	}
	if exited {
		runtime.Goexit()
	}
	return errors.Join(errs...)
}

// A member is a reactor in a group that runs.
type member struct {
	reactor *Reactor
	stop    context.CancelFunc
	opened  chan struct{}
	ended   chan struct{} // closed when all below is known

	at       time.Time
	err      error
	panicked any
	exited   bool
}

func (m *member) failed() bool { return m.err != nil || m.panicked != nil || m.exited }

// startMember runs a reactor, and calls fail when it fails.
func startMember(ctx context.Context, r *Reactor, fail func()) *member {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m := &member{reactor: r, stop: stop, opened: make(chan struct{}), ended: make(chan struct{}), exited: true}
	go func() {
		defer close(m.ended)
		defer func() {
			m.panicked = recover()
			m.exited = m.exited && m.panicked == nil
			m.at = time.Now()
			if m.failed() {
				fail()
			}
			stop()
		}()
		m.err = r.runOpened(ctx, func() { close(m.opened) })
		m.exited = false
	}()
	return m
}

// Check returns an error that names the reactors that are not running, paused or
// finished, and ctx's if it has ended: for a readiness handler.
func (g *Group) Check(ctx context.Context) error {
	errs := []error{ctx.Err()}
	for _, r := range g.Reactors {
		switch s := r.Status(); s.State {
		case Running, Paused, Finished:
		case Failed:
			errs = append(errs, s.Err)
		default:
			errs = append(errs, fmt.Errorf("reactor %q is %v", r.name, s.State))
		}
	}
	return errors.Join(errs...)
}
