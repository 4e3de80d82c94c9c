package memory

// Before implements local.Queue: by the time when they are due, and among equals
// by the order in which they came.
func (it *item) Before(other *item) bool {
	if !it.due.Equal(other.due) {
		return it.due.Before(other.due)
	}
	return it.turn < other.turn
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

// Before implements local.Element.
func (h *hold) Before(other *hold) bool { return h.deadline.Before(other.deadline) }

// An itemList holds the items that are out.
type itemList struct {
	first *item
	count int
}

func (l *itemList) push(it *item) {
	it.out, it.after = true, l.first
	if l.first != nil {
		l.first.before = it
	}
	l.first = it
	l.count++
}

func (l *itemList) remove(it *item) {
	if it.before == nil {
		l.first = it.after
	} else {
		it.before.after = it.after
	}
	if it.after != nil {
		it.after.before = it.before
	}
	it.out, it.before, it.after = false, nil, nil
	l.count--
}
