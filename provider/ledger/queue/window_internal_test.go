package queue

import (
	"encoding/binary"
	"testing"
	"time"
)

// The numbers of IDs are kept without their upper bits.
func TestWindowOutlivesItsNumbers(t *testing.T) {
	w := newWindow(time.Hour)
	w.lots = []*lot{{from: 3<<idBits - 5, stored: time.Now()}}
	id := func(n int) (id [16]byte) {
		binary.LittleEndian.PutUint64(id[:], uint64(n)+1)
		return id
	}
	now := time.Now()
	const lots, each = 5, 3
	for n := range lots * each {
		if n%each == 0 {
			w.settle(&pending{lot: w.open(nil, each), group: group{rows: []*row{{first: uint64(n)}}, stored: now}})
		}
		id := id(n)
		if l := w.note(&id, now); l != nil {
			t.Fatalf("ID %d is an old one, of the lot from %d", n, l.from)
		}
	}
	for n := range lots * each {
		if l := w.find(id(n), now); l == nil || l.first != uint64(n-n%each) {
			t.Errorf("ID %d is in %+v, want the lot with the entry %d", n, l, n-n%each)
		}
		id := id(n)
		if w.note(&id, now) == nil {
			t.Errorf("ID %d is a new one", n)
		}
	}
	for range lots * each {
		w.forget(1, now.Add(time.Hour))
	}
	for n := range (lots - 1) * each {
		if _, ok := w.seen.find(new(id(n))); ok {
			t.Errorf("ID %d was not forgotten", n)
		}
	}
	if _, ok := w.seen.find(new(id(lots*each - 1))); !ok {
		t.Error("the latest ID was forgotten")
	}
}
