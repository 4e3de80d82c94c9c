package queue_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A slowFS lets syncs of the database's log wait until they are released.
type slowFS struct {
	vfs.FS
	on      atomic.Bool
	blocked chan struct{} // one for each sync that waits
	gate    chan struct{}
}

func newSlowFS() *slowFS {
	fs := &slowFS{blocked: make(chan struct{}, 100), gate: make(chan struct{})}
	fs.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && isSync(op.Kind) && strings.HasSuffix(op.Path, ".log") && fs.on.Load() {
			fs.blocked <- struct{}{}
			<-fs.gate
		}
		return nil
	}))
	return fs
}

func newSlowStore(t *testing.T) (*slowFS, *store) {
	fs := newSlowFS()
	s := &store{t: t, fs: fs.FS}
	s.open()
	t.Cleanup(s.close)
	return fs, s
}

func isSync(k errorfs.OpKind) bool {
	return k == errorfs.OpFileSync || k == errorfs.OpFileSyncData || k == errorfs.OpFileSyncTo
}

func (fs *slowFS) block() { fs.on.Store(true) }

func (fs *slowFS) release() {
	fs.on.Store(false)
	close(fs.gate)
}
