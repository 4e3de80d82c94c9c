package reactor

import (
	"context"
	"fmt"
	"runtime/debug"
)

// A PanicError is a handler's panic as an error. [Run] panics with one, and
// [Recover] returns one.
type PanicError struct {
	// Value is what the handler panicked with.
	Value any
	// Stack is the handler's stack at that time, as [debug.Stack] prints it.
	Stack []byte
}

// Error gives the value and the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover wraps h so that a panic becomes an error, a [*PanicError]: the
// delivery is then retried like any other failure, and Run goes on. Without
// it a panic ends Run [RUN-6].
func Recover[T any](h Handler[T]) Handler[T] {
	return func(ctx context.Context, v T) error {
		p, err := call(ctx, h, v)
		if p != nil {
			return p
		}
		return err
	}
}

// call calls h, and tells an error that it returned, be it a *PanicError, from
// a panic.
func call[T any](ctx context.Context, h Handler[T], v T) (p *PanicError, err error) {
	defer func() {
		// A nil value is a return, or runtime.Goexit, which nothing can stop:
		// the panic value of panic(nil) is a *runtime.PanicNilError.
		if v := recover(); v != nil {
			p = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return nil, h(ctx, v)
}
