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

// A part is an open table with linear probing. The tag of an ID, a part of its
// hash, says where it would like to stand.
type idPart struct {
	tags []uint32 // a power of two; 0: free
	nos  []uint64 // as many
	used int
}

const (
	idTables   = 1 << 10
	idMinSlots = 16
)

func newIDTable(at func(no uint64) *[16]byte) *idTable {
	return &idTable{at: at, seed: [2]uint64{rand.Uint64(), rand.Uint64()}}
}

// hash returns which part an ID belongs to, and its tag.
func (t *idTable) hash(id *[16]byte) (*idPart, uint32) {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(id[:8])^t.seed[0], binary.LittleEndian.Uint64(id[8:])^t.seed[1])
	hi, lo = bits.Mul64(hi^lo, 0x9e3779b97f4a7c15)
	h := hi ^ lo
	return &t.tables[h%idTables], uint32(h>>32) | 1<<31
}

// look returns where an ID stands in a part that has slots, or is to stand.
func (t *idTable) look(p *idPart, id *[16]byte, tag uint32) (i uint32, found bool) {
	mask := uint32(len(p.tags) - 1)
	for i = tag & mask; p.tags[i] != 0; i = (i + 1) & mask {
		if p.tags[i] == tag && *t.at(p.nos[i]) == *id {
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
	return p.nos[i], ok
}

// put returns the place of an ID's number, to be set before anything else
// happens, and whether it was there.
func (t *idTable) put(id *[16]byte) (no *uint64, old bool) {
	p, tag := t.hash(id)
	if (p.used+1)*4 > len(p.tags)*3 {
		p.resize(max(idMinSlots, 2*len(p.tags)))
	}
	i, old := t.look(p, id, tag)
	if !old {
		p.tags[i] = tag
		p.used++
	}
	return &p.nos[i], old
}

// touch fetches into the processor's cache what put will want for an ID. Other
// than put after put, touch after touch need not wait for the memory each time:
// none depends on what the one before has fetched. What it returns means nothing.
func (t *idTable) touch(id *[16]byte) uint64 {
	p, tag := t.hash(id)
	if p.used == 0 {
		return 0
	}
	i := tag & uint32(len(p.tags)-1)
	return uint64(p.tags[i]) ^ p.nos[i]
}

func (p *idPart) resize(size int) {
	old := *p
	p.tags, p.nos = make([]uint32, size), make([]uint64, size)
	mask := uint32(size - 1)
	for i, tag := range old.tags {
		if tag == 0 {
			continue
		}
		at := tag & mask
		for p.tags[at] != 0 {
			at = (at + 1) & mask
		}
		p.tags[at], p.nos[at] = tag, old.nos[i]
	}
}

// delete deletes an ID if it has a number. Those behind it that would not be
// found over the gap move into it.
func (t *idTable) delete(id *[16]byte, no uint64) {
	p, tag := t.hash(id)
	if p.used == 0 {
		return
	}
	gap, ok := t.look(p, id, tag)
	if !ok || p.nos[gap] != no {
		return
	}
	mask := uint32(len(p.tags) - 1)
	for i := (gap + 1) & mask; p.tags[i] != 0; i = (i + 1) & mask {
		if (i-p.tags[i])&mask >= (i-gap)&mask {
			p.tags[gap], p.nos[gap] = p.tags[i], p.nos[i]
			gap = i
		}
	}
	p.tags[gap] = 0
	if p.used--; p.used*8 < len(p.tags) && len(p.tags) > idMinSlots {
		p.resize(len(p.tags) / 2)
	}
}
