package queue

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/provider/ledger/internal/filelock"
)

// A Guard stands between a database and its directory. When a write fails -- the
// disk is full or broken -- it freezes the directory: nothing in it changes any
// more, as after a crash, so that what is there can be read and opened anew.
// Left alone, Pebble would end the process.
//
// After that the database seems to work for who writes to it, which is why who
// commits must ask Err each time before it tells anybody: [LedgerOptions].Failed
// does it for a ledger. What was written before can be read until the database
// is closed, which is possible. Who waits at that time until the database has made
// room in memory does not wait for ever: the tables for that are kept in memory, too.
//
// While a database is being opened all writes seem to succeed after the first that
// has failed, whose error OpenDB returns. It cannot be closed yet, and left alone it
// would panic, or try for ever to store what it has found in its log.
type Guard struct {
	err     atomic.Pointer[error]
	opened  atomic.Bool
	frozen  chan struct{}
	once    sync.Once
	stalled atomic.Bool // a writer waits for tables to be written
	memory  vfs.FS      // what was opened since the freeze: the tables for it, and empty files
}

// OpenDB opens a database behind a guard. Of opts, which it copies, it uses its
// own FS around that of opts, Logger, and EventListener's DataCorruption: damage
// found while reading is the reader's error, and no reason to end anything. A
// nil opts stands for options that suit a ledger.
func OpenDB(dir string, opts *pebble.Options) (*pebble.DB, *Guard, error) {
	o := &pebble.Options{MemTableSize: 64 << 20, FormatMajorVersion: pebble.FormatNewest}
	if opts != nil {
		c := *opts
		o = &c
	}
	g := &Guard{frozen: make(chan struct{}), memory: vfs.NewMem()}
	inner := o.FS
	if inner == nil {
		inner = vfs.Default
	}
	o.FS = &guardFS{FS: inner, g: g}
	o.Logger = guardLogger{g}
	listener := pebble.EventListener{}
	if o.EventListener != nil {
		listener = *o.EventListener
	}
	listener.DataCorruption = func(pebble.DataCorruptionInfo) {}
	g.watch(&listener)
	o.EventListener = &listener
	db, err := pebble.Open(dir, o)
	if err != nil && g.Err() == nil && halfMade(inner, dir) {
		if err = removeMarkers(inner, dir); err == nil {
			db, err = pebble.Open(dir, o)
		}
	}
	if failed := g.Err(); failed != nil {
		if err == nil {
			_ = db.Close() // what failed before is the reason
		}
		err = failed
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open database %s: %w", dir, err)
	}
	g.opened.Store(true)
	return db, g, nil
}

// watch learns from the database's events when a writer waits.
func (g *Guard) watch(l *pebble.EventListener) {
	begin, end := l.WriteStallBegin, l.WriteStallEnd
	l.WriteStallBegin = func(info pebble.WriteStallBeginInfo) {
		g.stalled.Store(true)
		if begin != nil {
			begin(info)
		}
	}
	l.WriteStallEnd = func() {
		g.stalled.Store(false)
		if end != nil {
			end()
		}
	}
}

// markers begin the names of the files that say which manifest is the latest.
const markers = "marker.manifest."

// halfMade reports whether the power went while a database was being made in a
// directory, and all that is left is a marker for a manifest that is not there.
func halfMade(fs vfs.FS, dir string) bool {
	names, err := fs.List(dir)
	if err != nil {
		return false
	}
	marked := false
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, markers):
			marked = true
		case strings.HasPrefix(name, "MANIFEST-"), strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".blob"):
			return false
		case isLog(name):
			if info, err := fs.Stat(fs.PathJoin(dir, name)); err != nil || info.Size() > 0 {
				return false
			}
		}
	}
	return marked
}

func removeMarkers(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	for _, name := range names {
		if strings.HasPrefix(name, markers) {
			err = errors.Join(err, fs.Remove(fs.PathJoin(dir, name)))
		}
	}
	return err
}

// Err returns the error that froze the directory, or nil.
func (g *Guard) Err() error {
	if err := g.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Frozen returns a channel that is closed when the directory is frozen.
func (g *Guard) Frozen() <-chan struct{} { return g.frozen }

func (g *Guard) freeze(err error) {
	g.err.CompareAndSwap(nil, &err)
	g.once.Do(func() { close(g.frozen) })
}

// isFrozen reports whether writes must not reach the directory.
func (g *Guard) isFrozen() bool { return g.err.Load() != nil }

// wrote notes the outcome of a write and returns what the database is to see.
// When pretend is set that is a success: the database cannot live with less.
func (g *Guard) wrote(op, name string, err error, pretend bool) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s %s: %w", op, name, err)
	g.freeze(err)
	if pretend || !g.opened.Load() {
		return nil
	}
	return err
}

// refuse is what a write to a frozen directory ends with. It takes a moment: the
// database tries again and again to write what it has in memory.
func (g *Guard) refuse(op, name string) error {
	if !g.opened.Load() {
		return nil
	}
	time.Sleep(10 * time.Millisecond)
	return fmt.Errorf("%s %s: the directory is frozen: %w", op, name, g.Err())
}

type guardLogger struct{ g *Guard }

func (guardLogger) Infof(string, ...any)  {}
func (guardLogger) Errorf(string, ...any) {}
func (l guardLogger) Fatalf(format string, args ...any) {
	l.g.freeze(fmt.Errorf(format, args...))
}

// A guardFS is the file system that a guarded database sees.
type guardFS struct {
	vfs.FS
	g *Guard
}

// isLog reports whether a file is part of the database's log.
func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// isTable reports whether a file has rows that the log need not have any more. Only
// these are read again before the database is closed.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

func (fs *guardFS) Unwrap() vfs.FS { return fs.FS }

func (fs *guardFS) Lock(name string) (io.Closer, error) { return filelock.Lock(fs.FS, name) }

// open opens a file for writing.
func (fs *guardFS) open(op, name string, f func() (vfs.File, error)) (vfs.File, error) {
	g, pretend := fs.g, !isTable(name)
	var file vfs.File
	var err error
	waited := false
	if !g.isFrozen() {
		if file, err = f(); err != nil {
			err = g.wrote(op, name, err, pretend)
		}
	} else if waited = g.stalled.Load(); !waited && !pretend {
		err = g.refuse(op, name)
	}
	if err == nil && file == nil {
		file, err = g.memory.Create(filepath.Base(name), vfs.WriteCategoryUnspecified)
	}
	if err != nil || waited && !pretend {
		return file, err
	}
	return &guardFile{File: file, g: g, name: name, pretend: pretend}, nil
}

// Open opens a file for reading.
func (fs *guardFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if fs.g.isFrozen() && isTable(name) {
		if f, err := fs.g.memory.Open(filepath.Base(name)); err == nil {
			return f, nil
		}
	}
	return fs.FS.Open(name, opts...)
}

func (fs *guardFS) Stat(name string) (vfs.FileInfo, error) {
	if fs.g.isFrozen() && isTable(name) {
		if info, err := fs.g.memory.Stat(filepath.Base(name)); err == nil {
			return info, nil
		}
	}
	return fs.FS.Stat(name)
}

func (fs *guardFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.open("create", name, func() (vfs.File, error) { return fs.FS.Create(name, c) })
}

func (fs *guardFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return fs.open("open", name, func() (vfs.File, error) { return fs.FS.OpenReadWrite(name, c, opts...) })
}

func (fs *guardFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.open("create", to, func() (vfs.File, error) { return fs.FS.ReuseForWrite(from, to, c) })
}

func (fs *guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardFile{File: f, g: fs.g, name: name, pretend: true}, nil
}

func (fs *guardFS) Link(from, to string) error {
	if fs.g.isFrozen() {
		return fs.g.refuse("link", to)
	}
	return fs.g.wrote("link", to, fs.FS.Link(from, to), false)
}

func (fs *guardFS) Rename(from, to string) error {
	if fs.g.isFrozen() {
		return fs.g.refuse("rename", from)
	}
	return fs.g.wrote("rename", from, fs.FS.Rename(from, to), false)
}

// Remove leaves everything where it is once the directory is frozen. That
// something cannot be removed is no harm.
func (fs *guardFS) Remove(name string) error {
	if fs.g.isFrozen() {
		return nil
	}
	return fs.FS.Remove(name)
}

func (fs *guardFS) RemoveAll(name string) error {
	if fs.g.isFrozen() {
		return nil
	}
	return fs.FS.RemoveAll(name)
}

func (fs *guardFS) MkdirAll(name string, perm os.FileMode) error {
	if fs.g.isFrozen() {
		return fs.g.refuse("create", name)
	}
	return fs.g.wrote("create", name, fs.FS.MkdirAll(name, perm), false)
}

// A guardFile is a file open for writing, or a directory.
type guardFile struct {
	vfs.File
	g       *Guard
	name    string
	pretend bool // failures are kept from the database
}

// do runs a write of the file, unless the directory is frozen.
func (f *guardFile) do(op string, write func() error) error {
	if f.g.isFrozen() {
		if f.pretend {
			return nil
		}
		return f.g.refuse(op, filepath.Base(f.name))
	}
	return f.g.wrote(op, f.name, write(), f.pretend)
}

func (f *guardFile) Write(b []byte) (n int, err error) {
	err = f.do("write", func() (err error) { n, err = f.File.Write(b); return err })
	if err == nil {
		n = len(b)
	}
	return n, err
}

func (f *guardFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.do("write", func() (err error) { n, err = f.File.WriteAt(b, at); return err })
	if err == nil {
		n = len(b)
	}
	return n, err
}

func (f *guardFile) Sync() error {
	return f.do("sync", func() error { return f.File.Sync() })
}

func (f *guardFile) SyncData() error {
	return f.do("sync", func() error { return f.File.SyncData() })
}

func (f *guardFile) SyncTo(length int64) (full bool, err error) {
	err = f.do("sync", func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}

// Preallocate is a hint: that it failed the next write will tell.
func (f *guardFile) Preallocate(offset, length int64) error {
	if f.g.isFrozen() {
		return nil
	}
	return f.File.Preallocate(offset, length)
}

func (f *guardFile) Close() error {
	err := f.File.Close()
	if f.g.isFrozen() && f.pretend {
		return nil
	}
	return f.g.wrote("close", f.name, err, f.pretend)
}
