package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/catchment-events/catchment/event"
)

// speedType is the type of events in benchmarks.
const speedType = "speed.order.placed"

// A feed hands out events of one benchmark that are new: each gets its id when
// it is taken, so that it is as warm in the processor's cache as one that a
// service has just made. There are ringSize of them, which come again with other
// ids; a broker that keeps nothing of the caller's does not see that [EVT-4].
type feed struct {
	ring  []event.Event
	next  int // in ring
	ids   []string
	taken int
	made  int // ids that there have been
}

// ringSize is the largest batch.
const ringSize = 1000

func newFeed(size int) *feed {
	f := &feed{ring: make([]event.Event, ringSize)}
	data := orderData(size)
	for i := range f.ring {
		f.ring[i] = speedEvent(data)
	}
	return f
}

// fill has the feed hand out n events more, and returns it.
func (f *feed) fill(n int) *feed {
	f.ids, f.taken = make([]string, n), 0
	for i := range f.ids {
		f.made++
		f.ids[i] = "order-" + strconv.Itoa(f.made)
	}
	return f
}

// left is how many events have not been taken.
func (f *feed) left() int { return len(f.ids) - f.taken }

// take returns the next n events, or what is left.
func (f *feed) take(n int) []event.Event {
	n = min(n, f.left(), len(f.ring))
	if f.next+n > len(f.ring) {
		f.next = 0
	}
	events := f.ring[f.next : f.next+n]
	for i := range events {
		events[i].SetID(f.ids[f.taken+i])
	}
	f.next += n
	f.taken += n
	return events
}

// split deals all events to so many feeds, for a goroutine each.
func (f *feed) split(parts int) []*feed {
	out := make([]*feed, parts)
	for i := range out {
		from, to := i*len(f.ids)/parts, (i+1)*len(f.ids)/parts
		out[i] = &feed{ring: f.ring[i*ringSize/parts : (i+1)*ringSize/parts], ids: f.ids[from:to]}
	}
	return out
}

// speedEvent returns an event with six attributes and three extensions. Its data
// is what it is given, not a copy.
func speedEvent(data []byte) event.Event {
	e, err := event.New("/shop/checkout", speedType, json.RawMessage(data))
	if err != nil {
		panic(err) // it does not depend on anything
	}
	e.DataEncoded = data
	e.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC))
	e.SetSubject("order/4711")
	e.SetExtension("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	e.SetExtension("partitionkey", "customer-42")
	e.SetExtension("tenant", "acme")
	return e
}

// orderData returns JSON of that size, at least 64 bytes: an order as services
// send it, with a comment that fills it up.
func orderData(size int) []byte {
	const end = `],"comment":""}`
	var b bytes.Buffer
	b.WriteString(`{"order":4711,"items":[`)
	for i := 0; ; i++ {
		item := fmt.Sprintf(`{"sku":"A-%05d","count":%d,"price":%d.95}`, i, i%7+1, i%90+10)
		if i > 0 {
			item = "," + item
		}
		if b.Len()+len(item)+len(end) > size {
			break
		}
		b.WriteString(item)
	}
	b.WriteString(end[:len(end)-2])
	for b.Len() < size-2 {
		b.WriteByte('.')
	}
	b.WriteString(end[len(end)-2:])
	return b.Bytes()
}
