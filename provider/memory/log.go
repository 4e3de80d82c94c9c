package memory

import (
	"sort"
	"time"
)

// An entry is one stored event. It does not change once it is in a log.
type entry struct {
	seq         uint64
	stored      time.Time
	id          eventID
	typ         string
	header      map[string][]string
	body        []byte
	size        int64
	annotations map[string]string // of a dead letter
}

// A log is a sequence of entries. Entries leave from its front, and from its
// middle when they are removed one by one, as dead letters are.
type log struct {
	entries []*entry // entries[i] has sequence first+i; nil: removed
	first   uint64
	count   int
	size    int64

	consumers map[*consumer]struct{} // all that read it
	waiting   map[*consumer]struct{} // those with a Receive that waits
}

func newLog() *log {
	return &log{first: 1, consumers: make(map[*consumer]struct{}), waiting: make(map[*consumer]struct{})}
}

// len is how many entries there are.
func (l *log) len() int { return l.count }

// end is the sequence that the next entry will get.
func (l *log) end() uint64 { return l.first + uint64(len(l.entries)) }

func (l *log) append(e *entry) {
	e.seq = l.end()
	l.entries = append(l.entries, e)
	l.count++
	l.size += e.size
}

// at returns the entry of that sequence, or nil.
func (l *log) at(seq uint64) *entry {
	if seq < l.first || seq >= l.end() {
		return nil
	}
	return l.entries[seq-l.first]
}

// since returns the sequence of the first entry stored at t or later.
func (l *log) since(t time.Time) uint64 {
	i := sort.Search(len(l.entries), func(i int) bool {
		// A removed entry is as late as the next that is there.
		for ; i < len(l.entries); i++ {
			if e := l.entries[i]; e != nil {
				return !e.stored.Before(t)
			}
		}
		return true
	})
	return l.first + uint64(i)
}

// remove takes an entry out.
func (l *log) remove(seq uint64) {
	e := l.at(seq)
	if e == nil {
		return
	}
	l.entries[seq-l.first] = nil
	l.count--
	l.size -= e.size
	for len(l.entries) > 0 && l.entries[0] == nil {
		l.entries = l.entries[1:]
		l.first++
	}
}

// dropOldest removes the first entry, and notes it with the consumers that had
// not come to it yet.
func (l *log) dropOldest() {
	e := l.entries[0]
	for c := range l.consumers {
		if c.next <= e.seq && c.match.Match(e.typ) {
			c.missed++
		}
	}
	l.remove(e.seq)
}

// wake tells the consumers that wait for one of the entries.
func (l *log) wake(entries []*entry, now time.Time) {
	for c := range l.waiting {
		for _, e := range entries {
			if c.match.Match(e.typ) {
				c.kick(now)
				break
			}
		}
	}
}
