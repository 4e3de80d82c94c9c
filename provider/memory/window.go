package memory

import (
	"hash/maphash"
	"time"

	"github.com/catchment-events/catchment/event"
)

// A key stands for a source and an id: two hashes of them, with seeds that nobody
// knows. That two events of a window have the same by chance is out of the question
// (for a million of them, 1 in 10^26). It has no pointers, so that the garbage
// collector need not look at a million of them. The zero key is no event's.
type key [2]uint64

// A window remembers what was stored within the deduplication window [PUB-3]. What
// a call costs does not grow with the number of ids in it, nor when many leave it
// at once.
type window struct {
	length time.Duration
	base   time.Time // times are counted from here
	seeds  [2]maphash.Seed
	ids    pages[storedID] // oldest first; some may have left the window
	gone   uint32          // how many were forgotten, as far as it goes
	where  *index          // of each key the last time in ids: gone plus the position
}

type storedID struct {
	key key
	at  time.Duration
}

func newWindow(length time.Duration) window {
	return window{
		length: length,
		base:   time.Now(),
		seeds:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		where:  new(index),
	}
}

// key returns e's key. It needs no lock.
func (w *window) key(e event.Event) key {
	var buffer [256]byte
	id := event.AppendIdentity(buffer[:0], e)
	return key{maphash.Bytes(w.seeds[0], id), maphash.Bytes(w.seeds[1], id)}
}

// has reports whether k was stored within the window.
func (w *window) has(k key, now time.Time) bool {
	p, i := w.find(k)
	return i >= 0 && now.Sub(w.base)-w.at(uint32(p.slots[i])).at < w.length
}

// find returns the part of the index for k, and the slot in it, or -1.
func (w *window) find(k key) (*part, int) {
	p := w.where.of(k)
	return p, p.find(k.fingerprint(), func(place uint32) bool { return w.at(place).key == k })
}

func (w *window) at(place uint32) *storedID { return w.ids.at(int(place - w.gone)) }

// add notes that k is stored.
func (w *window) add(k key, now time.Time) {
	place := w.gone + uint32(w.ids.len())
	p, i := w.find(k)
	if i >= 0 { // it has left the window, and was not forgotten yet
		p.slots[i] = k.fingerprint() | uint64(place)
	} else {
		p.insert(k.fingerprint(), place)
	}
	*w.ids.push() = storedID{k, now.Sub(w.base)}
}

// undo takes back the last add, which was of k.
func (w *window) undo(k key) {
	p, i := w.find(k)
	p.remove(i)
	w.ids.popBack()
}

// forget drops ids that have left the window, so many at most: a million that leave
// it together would hold the broker up.
func (w *window) forget(now time.Time, most int) {
	for since := now.Sub(w.base); most > 0 && w.ids.len() > 0; most-- {
		oldest := *w.ids.at(0)
		if since-oldest.at < w.length {
			return
		}
		if p, i := w.find(oldest.key); i >= 0 && uint32(p.slots[i]) == w.gone { // not stored anew since
			p.remove(i)
		}
		w.ids.popFront()
		w.gone++
	}
}
