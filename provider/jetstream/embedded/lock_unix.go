//go:build unix

package embedded

import (
	"errors"
	"os"
	"syscall"
)

// lockFile opens a file that one process has at a time, until unlockFile, or
// its end.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// unlockFile gives the file up. To close it is not enough: a process that is
// being started has a copy of every open file until it runs its program, and
// the lock is on the file for as long as there is one.
func unlockFile(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var unlocked error
	if err := raw.Control(func(fd uintptr) { unlocked = syscall.Flock(int(fd), syscall.LOCK_UN) }); err != nil {
		return err
	}
	return errors.Join(unlocked, f.Close())
}
