package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A journal is where subscriptions write down what happens to their items
// before anybody acts on it. It is a file that grows, followed by another when
// it has grown enough, after which the state of the subscriptions is stored
// elsewhere and the file removed.
//
// What was appended stands in memory until somebody needs it to be written: by
// the operating system, which outlives the process, or on the disk, which
// outlives the machine. Whoever needs it first does it for all that wait.
type journal struct {
	fs   vfs.FS
	dir  string
	room int // bytes of a file that are mapped into memory

	mu sync.Mutex
	// Below: under mu.
	file     vfs.File
	mapped   []byte // what of the file is mapped into memory; nil: nothing
	number   uint64 // of the file
	offset   int64  // where the file ends
	buffer   []byte // room for a frame's header, and what is not written yet
	spare    []byte // for the next buffer
	appended uint64 // bytes of records, in all files
	written  uint64 // of those, the ones that the operating system has
	synced   uint64 // and the ones on the disk
	writing  bool   // somebody writes
	syncing  bool   // somebody syncs
	turn     chan struct{}
	err      error // the file is of no use any more
}

const (
	journalMagic  = "catchment journal"
	journalFormat = 1
	// The header of a file: magic, format, its number, where the file before
	// ends, and a checksum of all that.
	journalHeader = len(journalMagic) + 1 + 8 + 8 + 4
	// A frame begins with the length of what follows and its checksum.
	frameHeader = 8
	maxFrame    = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func journalName(number uint64) string { return fmt.Sprintf("journal-%012d", number) }

// journalNumber returns the number in the name of a file.
func journalNumber(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, "journal-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// openJournal makes the file of that number, which must not exist.
func openJournal(fs vfs.FS, dir string, number uint64, room int) (*journal, error) {
	j := &journal{fs: fs, dir: dir, room: room, buffer: make([]byte, frameHeader), spare: make([]byte, frameHeader)}
	f, err := j.create(number, 0)
	if err != nil {
		return nil, err
	}
	j.begin(f, number)
	return j, nil
}

// begin goes on in a file that create has made. The mutex is held, or nobody
// else knows j.
func (j *journal) begin(f vfs.File, number uint64) {
	j.file, j.number, j.offset = f, number, int64(journalHeader)
	j.mapped = mapFile(f, j.room)
}

// create makes a file that is there after a crash.
func (j *journal) create(number uint64, before int64) (vfs.File, error) {
	name := j.fs.PathJoin(j.dir, journalName(number))
	f, err := j.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	h := append(make([]byte, 0, journalHeader), journalMagic...)
	h = append(h, journalFormat)
	h = binary.BigEndian.AppendUint64(h, number)
	h = binary.BigEndian.AppendUint64(h, uint64(before))
	h = binary.BigEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
	if _, err = f.WriteAt(h, 0); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = syncDir(j.fs, j.dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), j.fs.Remove(name))
	}
	return f, nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// append notes a record, and returns what to pass to write or sync.
func (j *journal) append(r record) (position, number uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := len(j.buffer)
	j.buffer = appendRecord(j.buffer, r)
	j.appended += uint64(len(j.buffer) - before)
	return j.appended, j.number
}

// write returns when the operating system has what was appended up to a
// position, or could not take it. Then it may be called again.
func (j *journal) write(position uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.written < position {
		if j.err != nil {
			return j.err
		}
		if j.writing {
			j.wait()
			continue
		}
		if err := j.flush(); err != nil {
			return err
		}
	}
	return nil
}

// flush writes all that was appended. The mutex is held, but not meanwhile.
func (j *journal) flush() error {
	frame, end, at, f := j.buffer, j.appended, j.offset, j.file
	if len(frame) == frameHeader {
		return nil
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-frameHeader))
	binary.BigEndian.PutUint32(frame[4:], crc32.Checksum(frame[frameHeader:], castagnoli))
	if room := int64(len(j.mapped)) - at; int64(len(frame)) <= room && copyMapped(j.mapped[at:], frame) == nil {
		j.offset += int64(len(frame))
		j.written = end
		j.buffer = frame[:frameHeader]
		return nil
	}
	j.buffer, j.spare, j.writing = j.spare[:frameHeader], nil, true
	j.mu.Unlock()

	_, err := f.WriteAt(frame, at)

	j.mu.Lock()
	if err != nil {
		// The next to come writes it again, to the same place.
		j.buffer = append(frame, j.buffer[frameHeader:]...)
		j.spare = make([]byte, frameHeader)
		err = fmt.Errorf("ledger: write %s: %w", journalName(j.number), err)
	} else {
		j.offset += int64(len(frame))
		j.written = end
		if j.spare = frame; cap(frame) > 1<<20 {
			j.spare = make([]byte, frameHeader)
		}
	}
	j.writing = false
	j.next()
	return err
}

// sync returns when what was appended up to a position is on the disk.
func (j *journal) sync(position uint64) error {
	if err := j.write(position); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.synced < position {
		if j.err != nil {
			return j.err
		}
		if j.syncing {
			j.wait()
			continue
		}
		f, end := j.file, j.written
		j.syncing = true
		j.mu.Unlock()
		err := f.SyncData()
		j.mu.Lock()
		j.syncing = false
		j.next()
		if err != nil {
			// What the operating system had may be lost, whatever a second
			// sync says: only another file will do.
			j.err = fmt.Errorf("ledger: sync %s: %w", journalName(j.number), err)
			return j.err
		}
		j.synced = end
	}
	return nil
}

// wait waits for a change. The mutex is held, but not meanwhile.
func (j *journal) wait() {
	if j.turn == nil {
		j.turn = make(chan struct{})
	}
	turn := j.turn
	j.mu.Unlock()
	<-turn
	j.mu.Lock()
}

// next lets those go on who wait.
func (j *journal) next() {
	if j.turn != nil {
		close(j.turn)
		j.turn = nil
	}
}

// status returns how long the file is, and whether it can be used.
func (j *journal) status() (size int64, position uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.offset, j.appended, j.err
}

// current returns the number of the file.
func (j *journal) current() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.number
}

// rotate ends the file and begins the next. What was appended before is in the
// old one, or in the new one if the old one is of no use any more.
func (j *journal) rotate() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.writing || j.syncing {
		j.wait()
	}
	if j.err == nil {
		if err := j.flush(); err != nil {
			return err
		}
		for j.writing || j.syncing {
			j.wait()
		}
	}
	j.writing, j.syncing = true, true
	defer func() {
		j.writing, j.syncing = false, false
		j.next()
	}()
	old, number, before, failed := j.file, j.number+1, j.offset, j.err
	end := j.written
	j.mu.Unlock()
	if failed == nil {
		if err := old.SyncData(); err != nil {
			j.mu.Lock()
			j.err = fmt.Errorf("ledger: sync %s: %w", journalName(number-1), err) // as in sync
			return j.err
		}
	}
	f, err := j.create(number, before)
	j.mu.Lock()
	if err != nil {
		return fmt.Errorf("ledger: begin %s: %w", journalName(number), err)
	}
	unmap(j.mapped)
	j.begin(f, number)
	if failed == nil {
		j.synced = end
	}
	return old.Close()
}

// resume makes a journal that failed usable again, after rotate, when the state
// of the subscriptions is stored: nothing depends on the old file any more.
func (j *journal) resume() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil && j.err != nil {
		j.err, j.synced = nil, j.written
		j.next()
	}
}

// flushAll puts all that was appended on the disk.
func (j *journal) flushAll() error {
	_, position, _ := j.status()
	return j.sync(position)
}

// close ends the journal. Nobody uses it any more.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	unmap(j.mapped)
	f := j.file
	j.file, j.mapped, j.err = nil, nil, errClosedJournal
	return f.Close()
}

var errClosedJournal = errors.New("ledger: the journal is closed")
