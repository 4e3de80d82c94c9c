//go:build !unix

package embedded

import "os"

// lockFile opens a file. Here nothing keeps two processes from having it.
func lockFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
}

func unlockFile(f *os.File) error { return f.Close() }
