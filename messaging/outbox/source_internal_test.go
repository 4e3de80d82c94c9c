package outbox

import (
	"context"
	"errors"
	"testing"
)

// endsWhenWoken is a context that ends after a Receive was woken and before it
// looks.
type endsWhenWoken struct {
	context.Context
	wake  func()
	woken bool
}

func (c *endsWhenWoken) Done() <-chan struct{} {
	c.wake()
	c.woken = true
	return nil
}

func (c *endsWhenWoken) Err() error {
	if c.woken {
		return context.Canceled
	}
	return nil
}

// TestReceivePassesOn has the Receive that was woken for an event end without it:
// another one, which waits, is woken.
func TestReceivePassesOn(t *testing.T) {
	s := &source{kick: make(chan struct{}, 1), available: make(chan struct{}, 1)}
	ctx := &endsWhenWoken{Context: t.Context(), wake: s.signals}
	if _, err := s.Receive(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("received %v", err)
	}
	select {
	case <-s.available:
	default:
		t.Error("nobody else is woken")
	}
}
