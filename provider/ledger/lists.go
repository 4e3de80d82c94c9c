package ledger

import "github.com/catchment-events/catchment/provider/internal/local"

// Before implements local.Queue: by the time when they are due, and among equals
// by the order in which they came.
func (it *item) Before(other *item) bool {
	if !it.due.Equal(other.due) {
		return it.due.Before(other.due)
	}
	return it.turn < other.turn
}

// Before implements local.Element.
func (h *hold) Before(other *hold) bool { return h.deadline.Before(other.deadline) }

type waiter = local.Waiter[*source]
