package ledger

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

var sampleRecords = []record{
	{kind: recordFirst, inc: 1, seq: 1},
	{kind: recordSettled, inc: 1, seq: 1<<63 + 5},
	{kind: recordWaiting, inc: 300, seq: 7, attempt: 3, due: time.Unix(1, 2), failed: time.Unix(-1, 5), reason: "why\x00"},
	{kind: recordWaiting, inc: 300, seq: 8, attempt: 1},
	{kind: recordHeld, inc: 2, seq: 9, attempt: 1 << 30},
	{kind: recordPassed, inc: 2, seq: 10, missed: 1 << 40},
	{kind: recordLeft, inc: 2, due: time.Unix(3, 4)},
	{kind: recordRemoved, inc: 2, seq: 11},
	{kind: recordDying, inc: 2, seq: 12, attempt: 4, failed: time.Unix(5, 6), reason: "dead"},
}

// replayed returns what a directory's journals say.
func replayed(t *testing.T, fs vfs.FS, dir string, from uint64) (rs []record) {
	t.Helper()
	if err := replay(fs, dir, from, func(r record) { rs = append(rs, r) }); err != nil {
		t.Fatal(err)
	}
	return rs
}

// TestJournal writes each kind of record, over several files, and reads them.
func TestJournal(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"memory": vfs.NewCrashableMem(), "disk": vfs.Default} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := makeDir(fs, dir); err != nil {
				t.Fatal(err)
			}
			j, err := openJournal(fs, dir, 5, 100)
			if err != nil {
				t.Fatal(err)
			}
			var wrote []record
			for i := range 40 {
				for _, r := range sampleRecords {
					place, _ := j.append(r)
					wrote = append(wrote, r)
					if i%3 == 0 {
						err = j.sync(place)
					} else {
						err = j.write(place)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if i%7 == 6 {
					if err := j.rotate(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if diff := cmp.Diff(wrote, replayed(t, fs, dir, 5), cmp.AllowUnexported(record{})); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if err := j.close(); err != nil {
				t.Fatal(err)
			}
			// A journal without the end of the one before says nothing.
			if err := fs.Remove(fs.PathJoin(dir, journalName(6))); err != nil {
				t.Fatal(err)
			}
			if got := replayed(t, fs, dir, 5); len(got) != 7*len(sampleRecords) {
				t.Errorf("%d records before a gap, want %d", len(got), 7*len(sampleRecords))
			}
		})
	}
}

// TestJournalConcurrent lets many write and sync at once, while files change:
// each record is there when its call returns.
func TestJournalConcurrent(t *testing.T) {
	fs := vfs.NewCrashableMem()
	if err := makeDir(fs, "dir"); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(fs, "dir", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	const writers, each = 8, 200
	for w := range writers {
		work.Go(func() {
			for i := range each {
				place, _ := j.append(record{kind: recordFirst, inc: uint64(w), seq: uint64(i)})
				err := j.write(place)
				if i%20 == 19 {
					err = errors.Join(err, j.sync(place))
					crashed := fs.CrashClone(vfs.CrashCloneCfg{})
					n := 0
					err = errors.Join(err, replay(crashed, "dir", 1, func(r record) {
						if r.inc == uint64(w) && r.seq <= uint64(i) {
							n++
						}
					}))
					if n != i+1 {
						err = errors.Join(err, fmt.Errorf("writer %d: %d records are on the disk, want %d", w, n, i+1))
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Go(func() {
		for range 20 {
			if err := j.rotate(); err != nil {
				t.Error(err)
			}
		}
	})
	work.Wait()
	if n := len(replayed(t, fs, "dir", 1)); n != writers*each {
		t.Errorf("%d records, want %d", n, writers*each)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzFrames holds the reader of journals to bearing any bytes [SEC-3].
func FuzzFrames(f *testing.F) {
	b := make([]byte, frameHeader)
	for _, r := range sampleRecords {
		b = appendRecord(b, r)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for p := (parser{b: b}); len(p.b) > 0; {
			parseRecord(&p)
			if p.err != nil {
				break
			}
		}
		read := frames{left: int64(len(b)), r: bufio.NewReader(bytes.NewReader(b))}
		end, err := read.each(func(record) {})
		if used := end - int64(journalHeader); used > int64(len(b)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes used of %d: %v", used, len(b), err)
		}
	})
}

// FuzzRows holds the readers of rows to bearing any bytes [SEC-3].
func FuzzRows(f *testing.F) {
	s := state{next: 9, looked: 8, out: map[uint64]itemState{
		3: {attempt: 1, held: true},
		5: {attempt: 2, due: time.Unix(1, 0), failed: time.Unix(2, 0), reason: "why"},
		7: {attempt: 3, dying: true},
	}}
	f.Add(s.encode())
	f.Add(appendMessage(nil, "type", map[string][]string{"a": {"b", "c"}, "d": nil}, []byte("body")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseState(b); err == nil {
			again, err := parseState(s.encode())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s, again, cmp.AllowUnexported(state{}, itemState{})); diff != "" {
				t.Errorf("a state that was read and written (-want +got):\n%s", diff)
			}
		}
		_, _ = eventType(b)
		_, _ = decode(b)
		_, _, _, _ = parseLetter(b)
		_, _, _, _ = parseLetters(b)
		_, _, _ = parseSettings(b)
		_, _ = parseRaw("s", b)
	})
}
