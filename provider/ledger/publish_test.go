package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/provider/ledger"
	"github.com/catchment-events/catchment/reactor"
)

// TestPublishEndsAsItIsStored ends the context in the moment in which the events are
// stored: the error is of those that are not, or there is none.
func TestPublishEndsAsItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if slow.Load() && strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) {
				time.Sleep(time.Second)
			}
			return nil
		}))
		b := openIn(t, fs, "dir", ledger.Options{})
		slow.Store(true)
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := b.Publish(ctx, newEvent(t, fmt.Sprint(i)), newEvent(t, fmt.Sprint("b", i)))
			cancel()
			if err == nil {
				continue
			}
			batch, ok := errors.AsType[*reactor.BatchError](err)
			if !ok {
				t.Fatal(err)
			}
			if errors.Join(batch.Errors...) == nil {
				t.Fatalf("an error of events that are all stored: %v", err)
			}
			time.Sleep(time.Minute)
		}
		slow.Store(false)
	})
}
