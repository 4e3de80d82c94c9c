package memory

// An index tells where in the window a key is, in 16 to 32 bytes for each key. A map
// would take twice that and touch several cache lines for a key that is not there,
// which with a million of them is what a Publish spends most of its time on.
//
// It is a hash table with linear probing, in parts that grow each by itself, so that
// no Publish pays for more than one part.
type index [256]part

// A part has its keys in slots: of each the fingerprint in the upper half, and in
// the lower half the number of its place, as far as it goes. An empty slot is 0.
// At most half of the slots are taken.
type part struct {
	slots []uint64 // a power of two
	used  int
}

// fingerprint is what a slot has of a key. It is never 0, and says which slot is the
// first to look at.
func (k key) fingerprint() uint64 { return k[1]<<32 | 1<<63 }

func (x *index) of(k key) *part { return &x[k[0]%uint64(len(x))] }

func (p *part) home(fingerprint uint64) int { return int(fingerprint>>32) & (len(p.slots) - 1) }

// find returns the slot of the key with that fingerprint for which is returns true,
// or -1.
func (p *part) find(fingerprint uint64, is func(place uint32) bool) int {
	if p.used == 0 {
		return -1
	}
	for i := p.home(fingerprint); p.slots[i] != 0; i = p.next(i) {
		if s := p.slots[i]; s>>32 == fingerprint>>32 && is(uint32(s)) {
			return i
		}
	}
	return -1
}

func (p *part) next(i int) int { return (i + 1) & (len(p.slots) - 1) }

// insert adds a key that is not there.
func (p *part) insert(fingerprint uint64, place uint32) {
	if 2*(p.used+1) > len(p.slots) {
		old := p.slots
		p.slots = make([]uint64, max(8, 2*len(old)))
		for _, s := range old {
			if s != 0 {
				p.place(s)
			}
		}
	}
	p.used++
	p.place(fingerprint | uint64(place))
}

func (p *part) place(slot uint64) {
	i := p.home(slot)
	for p.slots[i] != 0 {
		i = p.next(i)
	}
	p.slots[i] = slot
}

// remove empties slot i. Slots behind it that would not be found any more, because
// of the gap on the way from their home, move up.
func (p *part) remove(i int) {
	last := len(p.slots) - 1
	for j := p.next(i); p.slots[j] != 0; j = p.next(j) {
		if home := p.home(p.slots[j]); (j-home)&last >= (j-i)&last {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = 0
	if p.used--; p.used == 0 && len(p.slots) > 1<<10 {
		p.slots = nil // many have been here, and have left
	}
}
