package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catchment-events/catchment/reactor"
)

func explode(v any) { panic(v) }

// TestPanic holds Run to a handler's panic: it comes out in Run's caller, with
// the handler's stack, after the others were drained [RUN-6].
func TestPanic(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name  string
		value any
		is    error
	}{
		{"of a string", "boom", nil},
		{"of an error", boom, boom},
		{"of nil", nil, &runtime.PanicNilError{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(time.Minute)
				slow := src.add("slow")[0]
				bad := src.add("bad")[0]
				began := time.Now()
				r := start(t, src, func(ctx context.Context, v string) error {
					if v == "bad" {
						time.Sleep(time.Second)
						explode(test.value)
					}
					time.Sleep(10 * time.Second)
					return ctx.Err()
				}, &reactor.Options[string]{Concurrency: 2})
				synctest.Wait()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				late := src.add("late")[0]
				r.wait()
				p, ok := r.panic.(*reactor.PanicError)
				if !ok {
					t.Fatalf("Run panicked with %v, want a *PanicError", r.panic)
				}
				if test.is == nil && p.Value != test.value {
					t.Errorf("the panic's value is %v, want %v", p.Value, test.value)
				}
				if test.is == boom && !errors.Is(p, boom) {
					t.Errorf("the panic is %v, must wrap boom", p.Value)
				}
				if !strings.Contains(string(p.Stack), "reactor_test.explode") || !strings.Contains(p.Error(), "reactor_test.explode") {
					t.Errorf("the stack is not the handler's:\n%s", p.Stack)
				}
				checkResult(t, reactor.Acked, slow)
				checkResult(t, reactor.Retried, bad)
				checkResult(t, 0, late)
				src.checkClosed(t, began.Add(10*time.Second))
			})
		})
	}
}

// TestPanicDuringOutage holds Run to letting a panic out although the delivery
// cannot be settled: it stops receiving first [RUN-6].
func TestPanicDuringOutage(t *testing.T) {
	for name, quit := range map[string]func(){
		"panic":  func() { panic("boom") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(0)
				src.put(&settler{value: "bad", onTry: func(ctx context.Context, _ int) error {
					<-ctx.Done()
					return ctx.Err()
				}})
				began := time.Now()
				r := start(t, src, func(_ context.Context, v string) error {
					if v != "bad" {
						t.Errorf("the handler was called with %s after a panic", v)
						return nil
					}
					quit()
					return nil
				}, &reactor.Options[string]{Concurrency: 2, DrainTimeout: 10 * time.Second})
				synctest.Wait()
				src.add("late")
				r.wait()
				if r.panic == nil && !r.quit {
					t.Error("Run returned, want what the handler did")
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %v to come out", took)
				}
			})
		})
	}
}

// TestPanicWhileDraining holds Run to a panic that comes after ctx has ended.
func TestPanicWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		s := src.add("bad")[0]
		r := start(t, src, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			panic("boom")
		}, &reactor.Options[string]{DrainTimeout: time.Second})
		synctest.Wait()
		r.stop()
		r.wait()
		if _, ok := r.panic.(*reactor.PanicError); !ok {
			t.Errorf("Run panicked with %v, want a *PanicError", r.panic)
		}
		checkResult(t, reactor.Retried, s)
	})
}

// TestGoexit holds Run to a handler that ends its goroutine, as t.FailNow
// does: the caller's goroutine ends likewise, after the others were drained.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		slow := src.add("slow")[0]
		bad := src.add("bad")[0]
		began := time.Now()
		r := start(t, src, func(_ context.Context, v string) error {
			if v == "bad" {
				time.Sleep(time.Second)
				runtime.Goexit()
			}
			time.Sleep(10 * time.Second)
			return nil
		}, &reactor.Options[string]{Concurrency: 2})
		r.wait()
		if !r.quit {
			t.Errorf("Run returned %v, panicked with %v, want its goroutine ended", r.err, r.panic)
		}
		checkResult(t, reactor.Acked, slow)
		checkResult(t, reactor.Retried, bad)
		src.checkClosed(t, began.Add(10*time.Second))
	})
}

// TestRecover holds the middleware to turning a panic into an error that
// retries like any other, and Run to going on [RUN-6].
func TestRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(time.Minute)
		bad := src.add("bad")[0]
		good := src.add("good")[0]
		var cause error
		r := start(t, src, reactor.Recover(func(_ context.Context, v string) error {
			if v == "bad" {
				explode("boom")
			}
			return nil
		}), &reactor.Options[string]{Observer: &reactor.Observer[string]{
			Settled: func(v string, _ reactor.Info, s reactor.Settlement) {
				if v == "bad" {
					cause = s.Cause
				}
			},
		}})
		synctest.Wait()
		r.drain(t)
		checkResult(t, reactor.Retried, bad)
		checkResult(t, reactor.Acked, good)
		var p *reactor.PanicError
		if !errors.As(cause, &p) || p.Value != "boom" || !strings.Contains(string(p.Stack), "reactor_test.explode") {
			t.Errorf("the cause is %v, want a *PanicError of boom with the handler's stack", cause)
		}
	})
}

// TestRecoverReturns holds the middleware to passing on what did not panic.
func TestRecoverReturns(t *testing.T) {
	boom := errors.New("boom")
	for _, want := range []error{nil, boom} {
		h := reactor.Recover(func(context.Context, int) error { return want })
		if got := h(t.Context(), 0); got != want {
			t.Errorf("Recover(h) returned %v, want %v", got, want)
		}
	}
}

type panicsError struct{}

func (panicsError) Error() string { panic("no text") }

// TestOutcomePanics takes a panic of a handler's error, or of Backoff, as one of the
// handler [RUN-6].
func TestOutcomePanics(t *testing.T) {
	backoff := func(int) time.Duration { panic("no delay") }
	for _, tt := range []struct {
		name string
		err  error
		opts reactor.Options[string]
		want string
	}{
		{"error", panicsError{}, reactor.Options[string]{}, "no text"},
		{"rejected error", reactor.Reject(panicsError{}), reactor.Options[string]{}, "no text"},
		{"backoff", errBoom, reactor.Options[string]{Backoff: backoff}, "no delay"},
		{"keyed", errBoom, reactor.Options[string]{Backoff: backoff, Concurrency: 2, Key: keyOf}, "no delay"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(time.Minute, "a")
				r := start(t, b, func(context.Context, string) error { return tt.err }, &tt.opts)
				r.wait()
				if p, ok := r.panic.(*reactor.PanicError); !ok || p.Value != tt.want {
					t.Errorf("Run panicked with %v, want %q", r.panic, tt.want)
				}
				if h := b.history(); len(h) != 1 || !strings.Contains(fmt.Sprint(h), "retr") {
					t.Errorf("settled %v, want one retry", h)
				}
			})
		})
	}
}
