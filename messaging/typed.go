package messaging

import (
	"context"
	"fmt"
	"reflect"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/internal/attribute"
	"github.com/catchment-events/catchment/reactor"
)

// Typed returns a handler that decodes the data with [event.Data] and calls h.
// What does not decode is rejected, with a reason that says why [RUN-1].
func Typed[T any](h func(ctx context.Context, e event.Event, v T) error) Handler {
	if h == nil {
		panic("messaging: Typed: the handler is nil")
	}
	return func(ctx context.Context, e event.Event) error {
		v, err := event.Data[T](e)
		if err != nil {
			// The cause comes last, and a reason is cut at MaxReason.
			return reactor.Reject(fmt.Errorf("messaging: event %.128q of type %.128q is no %v: %w", e.ID(), e.Type(), reflect.TypeFor[T](), err))
		}
		return h(ctx, e, v)
	}
}

// PartitionKey returns the extension partitionkey, else the subject, else the
// source: for Options.Key [RUN-2].
func PartitionKey(e event.Event) string {
	for _, name := range [...]string{"partitionkey", "subject", "source"} {
		if key, _, ok := attribute.Lookup(e, name); ok && key != "" {
			return key
		}
	}
	return ""
}
