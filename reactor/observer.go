package reactor

import (
	"slices"
	"time"
)

// An Observer is told what happens, by whoever does it, which waits: several
// calls at once, no lock held, and a panic is not caught. Fields may be nil.
type Observer[T any] struct {
	Received  func(v T, info Info)               // before the handler
	Settled   func(v T, info Info, s Settlement) // after each try to settle [RUN-9]
	State     func(name string, s Status)        // of a Reactor, after each change
	Error     func(err error)                    // trouble that nothing returns
	Published func(values []T, took time.Duration, err error)
}

// Observers returns an observer that tells several; nil ones do not count.
func Observers[T any](list ...*Observer[T]) *Observer[T] {
	list = slices.DeleteFunc(slices.Clone(list), func(o *Observer[T]) bool { return o == nil })
	return &Observer[T]{
		Received: func(v T, info Info) {
			for _, o := range list {
				if o.Received != nil {
					o.Received(v, info)
				}
			}
		},
		Settled: func(v T, info Info, s Settlement) {
			for _, o := range list {
				if o.Settled != nil {
					o.Settled(v, info, s)
				}
			}
		},
		State: func(name string, s Status) {
			for _, o := range list {
				if o.State != nil {
					o.State(name, s)
				}
			}
		},
		Error: func(err error) {
			for _, o := range list {
				if o.Error != nil {
					o.Error(err)
				}
			}
		},
		Published: func(values []T, took time.Duration, err error) {
			for _, o := range list {
				if o.Published != nil {
					o.Published(values, took, err)
				}
			}
		},
	}
}

// A Settlement is one try to settle a delivery.
type Settlement struct {
	Outcome  Outcome
	Cause    error         // what the handler returned; a [*PanicError] if it panicked
	Duration time.Duration // of the handler; 0: it was not called
	Err      error         // why the try failed; nil: it is settled
}
