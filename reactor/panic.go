package reactor

import (
	"context"
	"fmt"
	"runtime/debug"
)

// A PanicError is a handler's panic: [Run] panics with it, [Recover] returns it.
type PanicError struct {
	Value any
	Stack []byte // the handler's, as [debug.Stack] prints it
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack)
}

func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// call calls h, and tells an error that it returned, be it a *PanicError, from
// a panic.
func call[T any](ctx context.Context, h Handler[T], v T) (p *PanicError, err error) {
	defer recovered(&p)
	return nil, h(ctx, v)
}

// recovered is deferred, and catches a panic. A nil value is a return, or
// runtime.Goexit, which nothing can stop: the panic value of panic(nil) is a
// *runtime.PanicNilError.
func recovered(p **PanicError) {
	if v := recover(); v != nil {
		*p = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
