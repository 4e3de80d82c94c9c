package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/provider/ledger/internal/filelock"
)

// A holder keeps a directory for this process.
type holder struct {
	fs   vfs.FS
	name string // of the file that tells the process
	lock io.Closer
}

const (
	lockFile   = "LOCK"
	holderFile = "HOLDER"
	formatFile = "FORMAT"
	storeDir   = "store"
)

// dirFormat is what the format file says.
const dirFormat = 1

const (
	formatText = "catchment ledger "
	formatLine = formatText + "1\n"
	formatNew  = "new\n" // follows while the directory is being made
)

// seize takes a directory, which it makes if there is none. The error of one that
// somebody has says who.
func seize(fs vfs.FS, dir string) (*holder, error) {
	if err := makeDir(fs, dir); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	h := &holder{fs: fs, name: fs.PathJoin(dir, holderFile)}
	lock, err := filelock.Lock(fs, fs.PathJoin(dir, lockFile))
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return nil, fmt.Errorf("ledger: %w", err) // nobody has it: it cannot be written to
	}
	if err != nil {
		who := "another process"
		if b, err := readFile(fs, h.name); err == nil && len(b) > 0 {
			if who = "process " + strings.TrimSpace(string(b)); strings.TrimSpace(string(b)) == strconv.Itoa(os.Getpid()) {
				who = "this process"
			}
		}
		return nil, fmt.Errorf("ledger: %s is in use by %s: %w", dir, who, err)
	}
	h.lock = lock
	if err := writeFile(fs, h.name, strconv.Itoa(os.Getpid())+"\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger: %w", err), lock.Close())
	}
	return h, nil
}

// makeDir makes a directory that is there after a crash, with its parents.
func makeDir(fs vfs.FS, dir string) error {
	var parents []string // of directories that are not there
	for at := dir; ; {
		if _, err := fs.Stat(at); err == nil {
			break
		}
		up := fs.PathDir(at)
		parents = append(parents, up)
		if up == at || up == "." {
			break
		}
		at = up
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range parents {
		if err := syncDir(fs, p); err != nil {
			return err
		}
	}
	return nil
}

// release gives the directory back.
func (h *holder) release() error {
	return errors.Join(h.fs.Remove(h.name), h.lock.Close())
}

// checkFormat returns an error if the directory is of a newer version, or of
// something else. It marks one that is new, until confirmFormat: then a crash
// while it was being made leaves one that is known to hold nothing, and begins
// anew.
func checkFormat(fs vfs.FS, dir string) (fresh bool, err error) {
	name := fs.PathJoin(dir, formatFile)
	b, err := readFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		names, err := fs.List(dir)
		if err != nil {
			return false, err
		}
		if slices.Contains(names, storeDir) {
			return false, fmt.Errorf("ledger: %s is missing, beside a %s", name, storeDir)
		}
		if err := writeFile(fs, name, formatLine+formatNew); err != nil {
			return false, err
		}
		return true, syncDir(fs, dir)
	}
	if err != nil {
		return false, err
	}
	if string(b) == formatLine+formatNew {
		return true, fs.RemoveAll(fs.PathJoin(dir, storeDir))
	}
	digits, ok := strings.CutPrefix(strings.TrimSpace(string(b)), formatText)
	n, err := strconv.ParseUint(digits, 10, 32)
	switch {
	case !ok || err != nil || n == 0:
		return false, fmt.Errorf("ledger: %s does not say %q and a number, but %.64q", name, formatText, b)
	case n > dirFormat:
		return false, fmt.Errorf("ledger: %s says format %d, of a newer version than this one, which knows format %d", name, n, dirFormat)
	}
	return false, nil
}

// confirmFormat says that the directory is complete.
func confirmFormat(fs vfs.FS, dir string) error {
	if err := writeFile(fs, fs.PathJoin(dir, formatFile), formatLine); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// writeFile puts a small file in place of the one that is there, if any, such
// that a crash leaves the one or the other.
func writeFile(fs vfs.FS, name, text string) error {
	f, err := fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return fs.Rename(name+".new", name)
}
