//go:build unix

package embedded

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A process that is being started has a copy of the lock's file for a moment.
func TestUnlockDespiteCopy(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	f, err := lockFile(name)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(copied)
	if _, err := lockFile(name); err == nil {
		t.Error("two have the lock")
	}
	if err := unlockFile(f); err != nil {
		t.Fatal(err)
	}
	again, err := lockFile(name)
	if err != nil {
		t.Fatalf("after the first gave it up: %v", err)
	}
	if err := unlockFile(again); err != nil {
		t.Error(err)
	}
}
