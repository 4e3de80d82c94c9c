package ledger

import (
	"encoding/binary"
	"fmt"
	"time"
)

// A record says what happened to an item of a subscription. A journal is a
// sequence of them. Each begins with its kind, the number of the subscription's
// incarnation, and a sequence.
type record struct {
	kind    recordKind
	inc     uint64
	seq     uint64
	attempt int       // of recordWaiting, recordHeld and recordDying
	due     time.Time // of recordWaiting; of recordLeft when that was, or zero
	failed  time.Time // of recordWaiting and recordDying
	reason  string    // of recordWaiting and recordDying
	missed  uint64    // of recordPassed
}

type recordKind byte

const (
	// recordFirst: the entry was handed out for the first time, and everything
	// before it, that was not, is passed over.
	recordFirst recordKind = iota + 1
	// recordSettled: the subscription is done with the entry.
	recordSettled
	// recordWaiting: the entry waits for its next attempt until it is due.
	recordWaiting
	// recordHeld: the entry was handed out again.
	recordHeld
	// recordPassed: everything before the entry, that was not handed out, is
	// passed over, and so many events were discarded that nobody was told of.
	recordPassed
	// recordLeft: the last member closed; without a time: there is one again.
	recordLeft
	// recordRemoved: the subscription is done with the dead letter, and that
	// is removed.
	recordRemoved
	// recordDying: the entry is to join the dead letters.
	recordDying
)

func appendRecord(b []byte, r record) []byte {
	b = append(b, byte(r.kind))
	b = binary.AppendUvarint(b, r.inc)
	b = binary.AppendUvarint(b, r.seq)
	switch r.kind {
	case recordPassed:
		b = binary.AppendUvarint(b, r.missed)
	case recordHeld:
		b = binary.AppendUvarint(b, uint64(r.attempt))
	case recordWaiting:
		b = binary.AppendUvarint(b, uint64(r.attempt))
		b = appendTime(b, r.due)
		b = appendTime(b, r.failed)
		b = appendBytes(b, r.reason)
	case recordDying:
		b = binary.AppendUvarint(b, uint64(r.attempt))
		b = appendTime(b, r.failed)
		b = appendBytes(b, r.reason)
	case recordLeft:
		b = appendTime(b, r.due)
	}
	return b
}

// parseRecord takes the next record off.
func parseRecord(p *parser) (r record) {
	r.kind = recordKind(p.byte())
	r.inc = p.uvarint()
	r.seq = p.uvarint()
	switch r.kind {
	case recordFirst, recordSettled, recordRemoved:
	case recordPassed:
		r.missed = p.uvarint()
	case recordHeld:
		r.attempt = p.int()
	case recordWaiting:
		r.attempt = p.int()
		r.due, r.failed, r.reason = p.time(), p.time(), p.string()
	case recordDying:
		r.attempt = p.int()
		r.failed, r.reason = p.time(), p.string()
	case recordLeft:
		r.due = p.time()
	default:
		if p.err == nil {
			p.err = fmt.Errorf("a record of kind %d, which this version does not know", r.kind)
		}
	}
	return r
}
