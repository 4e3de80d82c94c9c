package ledger

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// journals returns the numbers of the journals in a directory, in order.
func journals(fs vfs.FS, dir string) ([]uint64, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := journalNumber(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// replay calls do with the records of the journals from a number on, as far as
// they follow each other without a gap: what comes after one says nothing, for
// it builds on what is missing. A crash leaves such a gap at the end, where
// nobody was told anything yet.
func replay(fs vfs.FS, dir string, from uint64, do func(record)) error {
	numbers, err := journals(fs, dir)
	if err != nil {
		return err
	}
	var last uint64
	var end int64
	for _, n := range numbers {
		if n < from {
			continue
		}
		name := fs.PathJoin(dir, journalName(n))
		f, err := openFrames(fs, name, n)
		switch {
		case errors.Is(err, errNoHeader):
			return nil // it was being made when the crash came
		case err != nil:
			return err
		case last != 0 && (n != last+1 || f.before != end):
			return f.file.Close()
		}
		last = n
		end, err = f.each(do)
		if err = errors.Join(err, f.file.Close()); err != nil {
			return fmt.Errorf("ledger: %s: %w", name, err)
		}
	}
	return nil
}

var errNoHeader = errors.New("the file does not begin as a journal does")

// frames is the file of a journal as it is read, a frame at a time: most of what it
// has room for may never have been written.
type frames struct {
	file   vfs.File
	before int64 // where the file before ends
	left   int64 // bytes of this one
	r      *bufio.Reader
}

// openFrames opens the journal of that number. Nobody writes to it meanwhile.
func openFrames(fs vfs.FS, name string, number uint64) (_ *frames, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // what failed before is the reason
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("ledger: read %s: %w", name, err)
	}
	r := bufio.NewReader(f)
	var b [journalHeader]byte
	switch n, err := io.ReadFull(r, b[:]); {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("ledger: read %s: %w", name, err)
	case n > len(journalMagic) && string(b[:len(journalMagic)]) == journalMagic && b[len(journalMagic)] > journalFormat:
		return nil, fmt.Errorf("ledger: %s is in format %d, of a newer version than this one, which knows format %d", name, b[len(journalMagic)], journalFormat)
	case n < journalHeader || string(b[:len(journalMagic)]) != journalMagic:
		return nil, errNoHeader
	}
	sum := journalHeader - 4
	if crc32.Checksum(b[:sum], castagnoli) != binary.BigEndian.Uint32(b[sum:]) {
		return nil, errNoHeader
	}
	h := b[len(journalMagic)+1:]
	if n := binary.BigEndian.Uint64(h); n != number {
		return nil, fmt.Errorf("ledger: %s holds the journal of number %d", name, n)
	}
	return &frames{file: f, before: int64(binary.BigEndian.Uint64(h[8:])), left: info.Size() - int64(journalHeader), r: r}, nil
}

// each calls do with the records of each frame that is whole, and returns where in
// the file they end. A frame that is whole and does not parse is an error: it was
// written so.
func (f *frames) each(do func(record)) (end int64, err error) {
	end = int64(journalHeader)
	var body []byte
	for f.left >= frameHeader {
		var head [frameHeader]byte
		if _, err := io.ReadFull(f.r, head[:]); err != nil {
			return end, err
		}
		f.left -= frameHeader
		n := binary.BigEndian.Uint32(head[:])
		if n == 0 || n > maxFrame || int64(n) > f.left {
			return end, nil
		}
		body = slices.Grow(body[:0], int(n))[:n]
		if _, err := io.ReadFull(f.r, body); err != nil {
			return end, err
		}
		f.left -= int64(n)
		if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
			return end, nil
		}
		for p := (parser{b: body}); len(p.b) > 0; {
			r := parseRecord(&p)
			if p.err != nil {
				return end, p.err
			}
			do(r)
		}
		end += frameHeader + int64(n)
	}
	return end, nil
}
