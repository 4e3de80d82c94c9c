package ledger

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/messaging"
)

// Options are the settings of a broker. The zero value and nil stand for the
// defaults. They are not stored: each Open gives its own.
type Options struct {
	// MaxEvents and MaxBytes bound the log. MaxBytes counts events as they
	// are encoded, without the overhead of keeping them. Default 1<<24 events
	// and 1<<34 bytes.
	MaxEvents int
	MaxBytes  int64

	// MaxAge is how long an event is kept, received or not; it may be kept
	// some seconds more. Default: for ever.
	MaxAge time.Duration

	// DiscardOldest makes room for new events by dropping the oldest,
	// received or not; a subscription that loses some is told through its
	// report [RET-3]. Default: Publish refuses with ErrFull [RET-2].
	DiscardOldest bool

	// MaxDeadLetters bounds the dead letters of each subscription. At the
	// bound an event that should join them stays where it is, is handed to
	// nobody, and is tried again [DLQ-3]. Default 1<<20.
	MaxDeadLetters int

	// Duplicates is the deduplication window [PUB-3], which survives a
	// restart. Default messaging.DefaultDuplicates.
	Duplicates time.Duration

	// Sync says when Publish returns. Default SyncAlways.
	Sync Sync

	// ConfirmedAck makes an Ack return when it is on the disk, as well as
	// what was published: no crash undoes it [CAP ConfirmedAck]. Acks at the
	// same time share a sync. One whose context ends before that goes on all
	// the same: repeat it, to wait for it again.
	ConfirmedAck bool

	// AckDelay is how long an ack may wait in memory before it is synced,
	// without ConfirmedAck: a crash may undo the acks of so long, and of the
	// time that the sync takes. Default 10 ms.
	AckDelay time.Duration

	// For tests.
	fs           vfs.FS // instead of the machine's own
	journalBytes int    // how long a journal grows before the next begins
}

// Sync says when Publish returns.
type Sync int

const (
	// SyncAlways: when the events are on the disk. They survive the loss of
	// power [CAP Synced].
	SyncAlways Sync = iota

	// SyncNever: when the events are in memory. The death of the process, or
	// of the machine, loses the last of them, always those that were
	// published last; Close loses none. The broker is not durable then, in
	// the sense of the contract. For tests, and for logs that can be lost.
	SyncNever
)

// withDefaults returns the options with their zero fields filled in.
func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.MaxEvents < 0 || out.MaxBytes < 0 || out.MaxAge < 0 || out.MaxDeadLetters < 0 || out.Duplicates < 0 || out.AckDelay < 0 {
		return out, fmt.Errorf("ledger: negative options: %+v", out)
	}
	if out.Sync != SyncAlways && out.Sync != SyncNever {
		return out, fmt.Errorf("ledger: Options.Sync is %d: must be SyncAlways or SyncNever", out.Sync)
	}
	if out.MaxEvents == 0 {
		out.MaxEvents = 1 << 24
	}
	if out.MaxBytes == 0 {
		out.MaxBytes = 1 << 34
	}
	if out.MaxDeadLetters == 0 {
		out.MaxDeadLetters = 1 << 20
	}
	if out.Duplicates == 0 {
		out.Duplicates = messaging.DefaultDuplicates
	}
	if out.AckDelay == 0 {
		out.AckDelay = 10 * time.Millisecond
	}
	if out.journalBytes == 0 {
		out.journalBytes = journalBytes
	}
	if out.fs == nil {
		out.fs = vfs.Default
	}
	return out, nil
}
