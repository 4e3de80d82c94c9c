package queue

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// An idTable finds IDs that stand elsewhere, by numbers that say where. It
// differs from a map in what the deduplication window needs: it is small, one
// look finds an ID or makes a place for it, IDs that come together wait for the
// memory together, and nothing ever takes long, for it consists of small tables
// that grow by themselves.
type idTable struct {
	at     func(no uint64) *[16]byte // where an ID stands
	seed   [2]uint64
	tables [idTables]idPart
}

// A part is an open table with linear probing.
type idPart struct {
	slots []idSlot // a power of two
	used  int
}

// A slot is the tag of an ID, a part of its hash that says where it would like to
// stand, and below it the number of the ID. 0 is free.
type idSlot uint64

const (
	idTables   = 1 << 10
	idMinSlots = 16
	idBits     = 40 // of a number
	idMask     = 1<<idBits - 1
)

func (s idSlot) tag() uint32 { return uint32(s >> idBits) }
func (s idSlot) no() uint64  { return uint64(s) & idMask }

// set gives the slot a number, modulo 1<<idBits.
func (s *idSlot) set(no uint64) { *s = *s&^idMask | idSlot(no&idMask) }

func newIDTable(at func(no uint64) *[16]byte) *idTable {
	return &idTable{at: at, seed: [2]uint64{rand.Uint64(), rand.Uint64()}}
}

// hash returns which part an ID belongs to, and its tag.
func (t *idTable) hash(id *[16]byte) (*idPart, uint32) {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(id[:8])^t.seed[0], binary.LittleEndian.Uint64(id[8:])^t.seed[1])
	hi, lo = bits.Mul64(hi^lo, 0x9e3779b97f4a7c15)
	h := hi ^ lo
	return &t.tables[h%idTables], uint32(h>>idBits) | 1<<(63-idBits)
}

// look returns where an ID stands in a part that has slots, or is to stand.
func (t *idTable) look(p *idPart, id *[16]byte, tag uint32) (i uint32, found bool) {
	mask := uint32(len(p.slots) - 1)
	for i = tag & mask; p.slots[i] != 0; i = (i + 1) & mask {
		if s := p.slots[i]; s.tag() == tag && *t.at(s.no()) == *id {
			return i, true
		}
	}
	return i, false
}

// find returns the number of an ID, and whether there is one.
func (t *idTable) find(id *[16]byte) (no uint64, ok bool) {
	p, tag := t.hash(id)
	if p.used == 0 {
		return 0, false
	}
	i, ok := t.look(p, id, tag)
	return p.slots[i].no(), ok
}

// put returns the slot of an ID, whose number is to be set before anything else
// happens, and whether it was there.
func (t *idTable) put(id *[16]byte) (s *idSlot, old bool) {
	p, tag := t.hash(id)
	if (p.used+1)*8 > len(p.slots)*5 {
		p.resize(max(idMinSlots, 2*len(p.slots)))
	}
	i, old := t.look(p, id, tag)
	s = &p.slots[i]
	if !old {
		*s = idSlot(tag) << idBits
		p.used++
	}
	return s, old
}

// touch fetches into the processor's cache what put will want for an ID. Other
// than put after put, touch after touch need not wait for the memory each time:
// none depends on what the one before has fetched. What it returns means nothing.
func (t *idTable) touch(id *[16]byte) uint64 {
	p, tag := t.hash(id)
	if p.used == 0 {
		return 0
	}
	return uint64(p.slots[tag&uint32(len(p.slots)-1)])
}

func (p *idPart) resize(size int) {
	old := p.slots
	p.slots = make([]idSlot, size)
	mask := uint32(size - 1)
	for _, s := range old {
		if s == 0 {
			continue
		}
		at := s.tag() & mask
		for p.slots[at] != 0 {
			at = (at + 1) & mask
		}
		p.slots[at] = s
	}
}

// delete deletes an ID if it has that number, modulo 1<<idBits. Those behind it
// that would not be found over the gap move into it.
func (t *idTable) delete(id *[16]byte, no uint64) {
	p, tag := t.hash(id)
	if p.used == 0 {
		return
	}
	mask := uint32(len(p.slots) - 1)
	want := idSlot(tag)<<idBits | idSlot(no&idMask)
	gap := tag & mask
	for ; p.slots[gap] != want; gap = (gap + 1) & mask {
		if p.slots[gap] == 0 {
			return
		}
	}
	for i := (gap + 1) & mask; p.slots[i] != 0; i = (i + 1) & mask {
		if (i-p.slots[i].tag())&mask >= (i-gap)&mask {
			p.slots[gap] = p.slots[i]
			gap = i
		}
	}
	p.slots[gap] = 0
	if p.used--; p.used*8 < len(p.slots) && len(p.slots) > idMinSlots {
		p.resize(len(p.slots) / 2)
	}
}
