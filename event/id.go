package event

import (
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// lastTick is the tick of the latest id: milliseconds since the epoch in the upper
// 52 bits and 1/4096 of a millisecond in the lower 12, just as they stand in a
// version 7 UUID.
var lastTick atomic.Uint64

// newID returns a version 7 UUID (RFC 9562, section 5.7) for an event made at now.
// The bits that the RFC leaves to rand_a hold the fraction of the millisecond (its
// method 3). An id whose tick is not after the last one takes the next tick, so ids
// increase within the process, and two ids never agree in their first half. The
// second half is random and tells processes apart.
func newID(now time.Time) string {
	tick := nextTick(now)

	var id [16]byte
	rand.Read(id[8:]) // never fails
	for i := range 6 {
		id[i] = byte(tick >> (52 - 8*i))
	}
	id[6] = 0x70 | byte(tick>>8)&0x0f
	id[7] = byte(tick)
	id[8] = 0x80 | id[8]&0x3f

	var text [36]byte
	hex.Encode(text[0:], id[0:4])
	hex.Encode(text[9:], id[4:6])
	hex.Encode(text[14:], id[6:8])
	hex.Encode(text[19:], id[8:10])
	hex.Encode(text[24:], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

func nextTick(now time.Time) uint64 {
	fraction := uint64(now.Nanosecond()) % 1e6 * 4096 / 1e6
	tick := uint64(now.UnixMilli())<<12 | fraction
	for {
		last := lastTick.Load()
		if tick <= last {
			tick = last + 1
		}
		if lastTick.CompareAndSwap(last, tick) {
			return tick
		}
	}
}
