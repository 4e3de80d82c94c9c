package ledger

import "time"

// kick wakes a waiter if there is something for it, and otherwise sets the
// timer. One at a time is enough: who was woken kicks again when it leaves.
func (c *consumer) kick(now time.Time) {
	if c.line.Quiet() {
		return
	}
	c.update(now)
	if c.busy(now) {
		c.line.Next()
		c.idle()
		return
	}
	var due time.Time
	if h := c.holds.Front(); h != nil {
		due = h.deadline
	}
	if len(c.queue) > 0 && !c.rests(now) && (due.IsZero() || c.queue[0].due.Before(due)) {
		due = c.queue[0].due
	}
	if c.rests(now) && (due.IsZero() || c.rest.Before(due)) {
		due = c.rest
	}
	c.line.SetAlarm(due, now, c.ring)
}

// ring is called by the alarm.
func (c *consumer) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line.Rang() {
		c.idle() // reports may have come up, too, and who is woken passes them on
	}
}

// grown is called when the log has grown while a Receive waited.
func (c *consumer) grown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.line.Empty() {
		c.log.await(c)
		c.kick(time.Now())
	}
}

// wait registers a Receive that found nothing, though it may have been woken.
func (c *consumer) wait(w *waiter, woken bool, now time.Time) {
	c.line.Join(w, woken)
	// Registered first, and then kick looks whether the log has grown: either
	// the look sees the growth, or who grew it sees the registration.
	c.log.await(c)
	c.kick(now)
}

// arrive undoes wait when the waiter has come back. It reports whether the waiter
// was woken.
func (c *consumer) arrive(w *waiter) (woken bool) {
	if woken = c.line.Arrive(w); !woken {
		c.idle()
	}
	return woken
}

// idle notes that nobody waits, once that is so.
func (c *consumer) idle() {
	if c.line.Empty() {
		c.log.leave(c)
	}
}
