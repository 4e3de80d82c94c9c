// Package filelock locks files by what they are, not by what they are called.
package filelock

import (
	"io"
	"path/filepath"
	"reflect"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Lock locks a file in a directory that exists, as [vfs.FS].Lock does: for this
// process alone, and once at a time. Of the machine's own files, that one keeps
// a process from locking a file again only if it is called the same, and a
// second lock under another name ends the first when it is given back. So Lock
// calls each directory by one name.
func Lock(fs vfs.FS, name string) (io.Closer, error) {
	if reflect.TypeOf(vfs.Root(fs)) == reflect.TypeOf(vfs.Default) {
		dir, err := filepath.Abs(filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return nil, err
		}
		name = filepath.Join(dir, filepath.Base(name))
	}
	return fs.Lock(name)
}
