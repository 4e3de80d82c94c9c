package queue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// A Table keeps marks under names in a database, each with some bytes of its
// owner's. Its methods are safe for concurrent use; who changes the row of one
// name at a time is for its callers to settle.
type Table struct {
	db     *pebble.DB
	prefix []byte
	gate   chan struct{} // who registers a name or deletes by what is registered holds it
	taken  chan map[string]bool
}

// OpenTable returns the table that stands under a prefix in a database. Keys
// that begin with prefix belong to the table alone. It reads nothing.
func OpenTable(db *pebble.DB, prefix []byte) *Table {
	t := &Table{db: db, prefix: slices.Clone(prefix), gate: make(chan struct{}, 1), taken: make(chan map[string]bool, 1)}
	t.taken <- make(map[string]bool)
	return t
}

func (t *Table) key(name string) []byte {
	return append(t.prefix[:len(t.prefix):len(t.prefix)], name...)
}

// Load returns the marks of a name and the bytes beside them; ok tells whether
// there are any. Both are the caller's.
func (t *Table) Load(name string) (m *Marks, extra []byte, ok bool, err error) {
	b, closer, err := t.db.Get(t.key(name))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, false, fmt.Errorf("queue: load the marks of %q: %w", name, err)
	}
	defer closer.Close()
	marks, extra, err := splitRow(b)
	if err == nil {
		m = new(Marks)
		err = m.UnmarshalBinary(marks)
	}
	if err != nil {
		return nil, nil, false, fmt.Errorf("queue: load the marks of %q: %w", name, err)
	}
	return m, bytes.Clone(extra), true, nil
}

// splitRow returns the parts of a row: the length of the marks, the marks, and
// what is beside them.
func splitRow(b []byte) (marks, extra []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, errors.New("the row does not parse")
	}
	return b[size : size+int(n)], b[size+int(n):], nil
}

// Save puts the marks of a name into a batch, which is the caller's to commit.
func (t *Table) Save(b *pebble.Batch, name string, m *Marks, extra []byte) error {
	row := make([]byte, binary.MaxVarintLen64, 64+len(extra)+4*m.Ranges())
	row, err := m.AppendBinary(row)
	if err != nil {
		return err
	}
	var head [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(head[:], uint64(len(row)-len(head)))
	row = row[len(head)-n:]
	copy(row, head[:n])
	return b.Set(t.key(name), append(row, extra...), nil)
}

// Delete puts into a batch, which is the caller's to commit, what deletes a name.
func (t *Table) Delete(b *pebble.Batch, name string) error {
	return b.Delete(t.key(name), nil)
}

// Names returns all names, in order.
func (t *Table) Names() (names []string, err error) {
	err = t.each(func(name string, _ []byte) error {
		names = append(names, name)
		return nil
	})
	return names, err
}

// Floors returns the floor of each name.
func (t *Table) Floors() (map[string]uint64, error) {
	floors := make(map[string]uint64)
	err := t.each(func(name string, row []byte) error {
		marks, _, err := splitRow(row)
		if err != nil {
			return err
		}
		if len(marks) == 0 || marks[0] != format {
			return errors.New("its marks are of another version")
		}
		floor, size := binary.Uvarint(marks[1:])
		if size <= 0 {
			return errors.New("its marks do not parse")
		}
		floors[name] = floor
		return nil
	})
	return floors, err
}

func (t *Table) each(f func(name string, row []byte) error) error {
	end := slices.Clone(t.prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
	} else {
		end = nil // the prefix has no end
	}
	it, err := t.db.NewIter(&pebble.IterOptions{LowerBound: t.prefix, UpperBound: end})
	if err != nil {
		return fmt.Errorf("queue: read the table %q: %w", t.prefix, err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		name := string(it.Key()[len(t.prefix):])
		row, err := it.ValueAndErr()
		if err == nil {
			err = f(name, row)
		}
		if err != nil {
			return fmt.Errorf("queue: read the row of %q in the table %q: %w", name, t.prefix, err)
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("queue: read the table %q: %w", t.prefix, err)
	}
	return nil
}

// take makes a name its caller's in this process and reports whether it was
// free; drop frees it.
func (t *Table) take(name string) bool {
	m := <-t.taken
	defer func() { t.taken <- m }()
	if m[name] {
		return false
	}
	m[name] = true
	return true
}

func (t *Table) drop(name string) {
	m := <-t.taken
	delete(m, name)
	t.taken <- m
}
