package ledger

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/event"
)

// Inject stores a message as a program with another idea of events might have.
func (b *Broker) Inject(ctx context.Context, header map[string][]string, body []byte) error {
	typ := "foreign"
	if v := header["ce-type"]; len(v) > 0 {
		typ = v[0]
	}
	if e, err := event.NATS.Decode(header, body); err == nil {
		typ = e.Type()
	}
	w := writers.Get().(*writer)
	defer w.free()
	w.buf = appendMessage(w.buf, typ, header, body)
	w.end([16]byte{})
	return b.store(ctx, w)
}

// On returns the options with a file system in place of the machine's own.
func (o Options) On(fs vfs.FS) *Options {
	o.fs = fs
	return &o
}

// Rotating returns the options with journals of so many bytes.
func (o Options) Rotating(bytes int) Options {
	o.journalBytes = bytes
	return o
}

// FS returns the broker's file system.
func (b *Broker) FS() vfs.FS { return b.fs }

// Dir returns the broker's directory.
func (b *Broker) Dir() string { return b.dir }
