package memory

// ahead is what a consumer has read of its log and not begun: copies, made many at a
// time, of what matches. Nothing of it is out, nor counts as looked at: it is what the
// next look into the log would find, and is forgotten whenever that may have changed.
type ahead struct {
	entries []entry // those left, in buffer
	buffer  []entry
	grow    bool // the last read has filled the buffer
}

// mostAhead bounds the memory that a subscription takes, and the time for which
// reading keeps Publish waiting.
const mostAhead = 32

// fresh is the next entry that was not out yet, or nil if there is none or no
// room for it.
func (c *consumer) fresh() *entry {
	if c.out.count >= c.sub.MaxInFlight {
		return nil
	}
	a := &c.ahead
	most := mostAhead
	if c.sub.DeadLettersOf != "" {
		c.forgetAhead() // dead letters leave from anywhere
		most = 1
	}
	if len(a.entries) == 0 && !c.read(most) {
		return nil
	}
	c.next = a.entries[0].seq
	return &a.entries[0]
}

// read fills ahead, which is empty, with that many at most. It reports whether there
// was anything.
func (c *consumer) read(most int) bool {
	a, l := &c.ahead, c.log
	if c.next >= l.end.Load() {
		return false
	}
	if a.buffer == nil || a.grow { // who keeps up with Publish needs little
		a.buffer = make([]entry, min(max(2*len(a.buffer), 4), most))
	}
	l.mu.Lock()
	c.noteLost()
	c.next = max(c.next, l.first.Load()) // dead letters are not noted as lost
	n, seq, end := 0, c.next, l.end.Load()
	for ; n < len(a.buffer) && seq < end; seq++ {
		if e := l.at(seq); e != nil && c.match.Match(e.typ) {
			a.buffer[n] = *e
			n++
		}
	}
	l.mu.Unlock()
	a.entries, a.grow = a.buffer[:n], n == len(a.buffer) && n < most
	if n == 0 {
		c.next = seq // all that is there was looked at
	}
	return n > 0
}

// begin makes an item of the entry that fresh returned.
func (c *consumer) begin(fresh *entry) *item {
	it := &item{entry: *fresh, attempt: 1}
	c.out.push(it)
	c.next = fresh.seq + 1
	*fresh = entry{} // the buffer keeps nothing alive
	c.ahead.entries = c.ahead.entries[1:]
	return it
}

// forgetAhead has the next look into the log begin where the consumer stands.
func (c *consumer) forgetAhead() {
	clear(c.ahead.entries)
	c.ahead.entries = nil
}
