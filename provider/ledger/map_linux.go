package ledger

import (
	"fmt"
	"runtime/debug"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mapFile maps the first bytes of a file into memory, so that writing them costs
// no call of the operating system, which has them all the same: they outlive
// the process, and a sync of the file puts them on the disk. It returns nil for
// a file that is none of the machine's, or for which there is no room.
func mapFile(f vfs.File, size int) []byte {
	fd := f.Fd()
	if fd == vfs.InvalidFd {
		return nil
	}
	// Without room on the disk a write to the memory would be a fault.
	if err := f.Preallocate(0, int64(size)); err != nil {
		return nil
	}
	if _, err := f.WriteAt([]byte{0}, int64(size)-1); err != nil {
		return nil
	}
	b, err := syscall.Mmap(int(fd), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return b
}

func unmap(b []byte) {
	if b != nil {
		_ = syscall.Munmap(b) // fails for what is not mapped only
	}
}

// copyMapped copies to memory that is mapped. Some file systems find out only
// then that they have no room.
func copyMapped(to, from []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("write to mapped memory: %v", p)
		}
	}()
	copy(to, from)
	return nil
}
