package memory

// queue is a heap of items by the time when they are due, and among equals by
// the order in which they came.
type queue []*item

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return q[i].turn < q[j].turn
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*item)) }
func (q *queue) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return it
}

// swap lets two items of the queue change places. Both are due.
func (c *consumer) swap(a, b *item) {
	a.due, b.due = b.due, a.due
	a.turn, b.turn = b.turn, a.turn
	for i, it := range c.queue {
		if it == a {
			c.queue[i] = b
		} else if it == b {
			c.queue[i] = a
		}
	}
}

// A holdList holds the holds by deadline. New ones belong at its end, unless
// AckWait was made shorter.
type holdList struct{ first, last *hold }

func (l *holdList) front() *hold { return l.first }

func (l *holdList) insert(h *hold) {
	at := l.last
	for at != nil && h.deadline.Before(at.deadline) {
		at = at.before
	}
	h.listed, h.before = true, at
	if at == nil {
		h.after, l.first = l.first, h
	} else {
		h.after, at.after = at.after, h
	}
	if h.after == nil {
		l.last = h
	} else {
		h.after.before = h
	}
}

func (l *holdList) remove(h *hold) {
	if !h.listed {
		return
	}
	if h.before == nil {
		l.first = h.after
	} else {
		h.before.after = h.after
	}
	if h.after == nil {
		l.last = h.before
	} else {
		h.after.before = h.before
	}
	h.listed, h.before, h.after = false, nil, nil
}

// A waiter is a Receive that waits.
type waiter struct {
	source        *source
	wake          chan struct{} // room for one
	signalled     bool          // woken, and not come back yet
	starving      bool          // woken in vain the last time
	before, after *waiter
}

// A waiterList holds waiters in the order in which they came, but for those
// that were pushed to its front.
type waiterList struct{ first, last *waiter }

func (l *waiterList) empty() bool { return l.first == nil }

func (l *waiterList) push(w *waiter) {
	w.before, w.after = l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.after = w
	}
	l.last = w
}

func (l *waiterList) pushFront(w *waiter) {
	w.before, w.after = nil, l.first
	if l.first == nil {
		l.last = w
	} else {
		l.first.before = w
	}
	l.first = w
}

func (l *waiterList) pop() *waiter {
	w := l.first
	if w != nil {
		l.remove(w)
	}
	return w
}

func (l *waiterList) remove(w *waiter) {
	if w.before == nil {
		l.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		l.last = w.before
	} else {
		w.after.before = w.before
	}
	w.before, w.after = nil, nil
}

// of returns the waiters of one member.
func (l *waiterList) of(s *source) (ws []*waiter) {
	for w := l.first; w != nil; w = w.after {
		if w.source == s {
			ws = append(ws, w)
		}
	}
	return ws
}
