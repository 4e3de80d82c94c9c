package memory

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catchment-events/catchment/event"
)

// An entry is one stored event. It does not change once it is in a log. Those who
// have to do with it copy it: the log may drop it meanwhile.
type entry struct {
	seq         uint64 // 0: there is none
	stored      time.Time
	typ         string
	attributes  string // of the event, in flat form
	data        string
	size        int64
	raw         *message          // what was injected, in place of these
	annotations map[string]string // of a dead letter
}

// A message is what somebody else might have put into the log, event or not.
type message struct {
	header  map[string][]string
	body    []byte
	decodes bool // it is an event
}

// encode makes an entry of a checked event. Nothing of it is the event's, nor
// changes any more.
func encode(e event.Event) (entry, error) {
	var buffer [2 * smallData]byte
	text, err := event.AppendAttributes(buffer[:0], e)
	if err != nil {
		return entry{}, err
	}
	out := entry{typ: e.Type(), size: int64(len(text) + len(e.DataEncoded))}
	if len(e.DataEncoded) > smallData {
		out.attributes, out.data = string(text), string(e.DataEncoded)
		return out, nil
	}
	attributes := len(text)
	both := string(append(text, e.DataEncoded...))
	out.attributes, out.data = both[:attributes], both[attributes:]
	return out, nil
}

// smallData is how much data shares an allocation with the attributes. Who keeps an
// attribute of a delivery keeps no more than that in memory with it.
const smallData = 512

// decode returns the event, which is the caller's: it shares the strings of its
// attributes with others, and nothing that can be changed.
func (e *entry) decode() (event.Event, error) {
	if e.raw != nil {
		return event.NATS.Decode(e.raw.header, slices.Clone(e.raw.body))
	}
	var data []byte
	if e.data != "" {
		data = []byte(e.data)
	}
	return event.ParseAttributes(e.attributes, data)
}

// A log is a sequence of entries. Entries leave from its front, and from its
// middle when they are removed one by one, as dead letters are.
//
// It has a mutex of its own, so that those who publish and those who receive and
// settle do not stand in each other's way: a consumer takes it once for many entries.
// Who has the broker's mutex may take this one, and not the other way round.
type log struct {
	consumers map[*consumer]struct{} // all that read it; under the broker's mutex
	waiting   waitingList            // those with a Receive that waits; under the broker's mutex

	// The sequence of the first entry. It changes under mu.
	first atomic.Uint64

	_   apart
	end atomic.Uint64 // the sequence of the next that will be there; it changes under mu
	mu  sync.Mutex
	// Below: under mu.
	entries pages[entry] // the first has sequence first; those removed are zero
	count   int
	size    int64
	lost    []lostRun // the entries before first that some consumer may have missed
}

func newLog() *log {
	l := &log{consumers: make(map[*consumer]struct{})}
	l.first.Store(1)
	l.end.Store(1)
	return l
}

// len is how many entries there are.
func (l *log) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// append adds an entry. The mutex is held.
func (l *log) append(e *entry) {
	place := l.entries.push()
	*place = *e
	place.seq = l.end.Load()
	l.count++
	l.size += e.size
	l.end.Store(place.seq + 1)
}

// add is append, without the mutex.
func (l *log) add(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.append(e)
}

// at returns the entry of that sequence, or nil. It stays until it is removed. The
// mutex is held.
func (l *log) at(seq uint64) *entry {
	first := l.first.Load()
	if seq < first || seq >= l.end.Load() {
		return nil
	}
	if e := l.entries.at(int(seq - first)); e.seq != 0 {
		return e
	}
	return nil
}

// since returns the sequence of the first entry stored at t or later.
func (l *log) since(t time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := sort.Search(l.entries.len(), func(i int) bool {
		// A removed entry is as late as the next that is there.
		for ; i < l.entries.len(); i++ {
			if e := l.entries.at(i); e.seq != 0 {
				return !e.stored.Before(t)
			}
		}
		return true
	})
	return l.first.Load() + uint64(i)
}

// remove takes an entry out.
func (l *log) remove(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(seq)
}

// drop is remove, with the mutex held.
func (l *log) drop(seq uint64) {
	e := l.at(seq)
	if e == nil {
		return
	}
	l.count--
	l.size -= e.size
	*e = entry{}
	for l.entries.len() > 0 && l.entries.at(0).seq == 0 {
		l.entries.popFront()
		l.first.Add(1)
	}
}

// dropOldest removes the first entry. Consumers that had not come to it note that
// when they come by, or once there are many to note: a Publish that has to make room
// does not ask each of them. The mutex is held.
func (l *log) dropOldest() {
	typ := l.entries.at(0).typ
	l.drop(l.first.Load())
	if n := len(l.lost); n > 0 && l.lost[n-1].typ == typ {
		l.lost[n-1].end++
		return
	}
	l.lost = append(l.lost, lostRun{typ, l.first.Load()})
}

// A lostRun is a number of entries of one type, one after the other, that were
// dropped. The next begins where it ends.
type lostRun struct {
	typ string
	end uint64 // the sequence behind the last
}

const mostLost = 256

// note has every consumer note what was dropped, so that it need not be kept. The
// broker's mutex is held.
func (l *log) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.consumers {
		c.noteLost()
	}
	clear(l.lost)
	l.lost = l.lost[:0]
}

// miss notes the entries that were dropped and that the consumer had not come to. Of
// dead letters none are: those that are gone were acked.
func (c *consumer) miss() {
	if c.next >= c.log.first.Load() {
		return
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.noteLost()
}

// noteLost is miss, with the log's mutex held.
func (c *consumer) noteLost() {
	if c.next >= c.log.first.Load() {
		return
	}
	for _, run := range c.log.lost {
		if run.end > c.next {
			if c.match.Match(run.typ) {
				c.missed += run.end - c.next
			}
			c.next = run.end
		}
	}
	c.forgetAhead() // some of it is gone
}

// wake tells the consumers that wait for one of the entries that were added, but for
// duplicates. The broker's mutex is held.
func (l *log) wake(added []pending, now time.Time) {
	last := -1
	for i := range added {
		if !added[i].duplicate && (last < 0 || added[i].entry.typ != added[last].entry.typ) {
			l.waiting.wake(added[i].entry.typ, now)
			last = i
		}
	}
}
