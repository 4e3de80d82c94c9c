package ledger

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/catchment-events/catchment/messaging"
)

// A state is what is stored of a subscription's position: where it is, and each
// item that is out. It is the common form of rows and journals.
type state struct {
	next   uint64    // everything before is settled, but for what is out
	looked uint64    // the last that was handed out or passed over; 0: none since the position was set
	missed uint64    // events that were discarded, and nobody was told of
	left   time.Time // when the last member closed; zero: there was one
	out    map[uint64]itemState
	dead   map[uint64]bool // what was buried and is not before next: told by rows of its own
}

type itemState struct {
	attempt int
	held    bool // with a member; otherwise it waits
	dying   bool // or is to join the dead letters
	due     time.Time
	failed  time.Time
	reason  string
}

// stateFormat begins the row of a state.
const stateFormat = 1

func (s *state) encode() []byte {
	b := append(make([]byte, 0, 64+16*len(s.out)), stateFormat)
	b = binary.AppendUvarint(b, s.next)
	b = binary.AppendUvarint(b, s.looked)
	b = binary.AppendUvarint(b, s.missed)
	b = appendTime(b, s.left)
	b = binary.AppendUvarint(b, uint64(len(s.out)))
	seqs := make([]uint64, 0, len(s.out))
	for seq := range s.out {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	last := uint64(0)
	for _, seq := range seqs {
		it := s.out[seq]
		b = binary.AppendUvarint(b, seq-last)
		last = seq
		kind := uint64(it.attempt) << 3
		if it.held {
			kind |= 1
		}
		if it.dying {
			kind |= 4
		}
		if plain := it.due.IsZero() && it.failed.IsZero() && it.reason == ""; plain {
			b = binary.AppendUvarint(b, kind)
			continue
		}
		b = binary.AppendUvarint(b, kind|2)
		b = appendTime(b, it.due)
		b = appendTime(b, it.failed)
		b = appendBytes(b, it.reason)
	}
	return b
}

func parseState(b []byte) (*state, error) {
	p := parser{b: b}
	if f := p.byte(); p.err == nil && f != stateFormat {
		return nil, fmt.Errorf("the row of a position is in format %d, but this version knows format %d only", f, stateFormat)
	}
	s := &state{next: p.uvarint(), looked: p.uvarint(), missed: p.uvarint(), left: p.time()}
	n := p.uvarint()
	if n > uint64(len(p.b)) {
		p.fail()
		n = 0
	}
	s.out = make(map[uint64]itemState, min(n, 1<<12))
	last := uint64(0)
	for range n {
		last += p.uvarint()
		kind := p.uvarint()
		it := itemState{attempt: int(kind >> 3), held: kind&1 != 0, dying: kind&4 != 0}
		if kind&2 != 0 {
			it.due, it.failed, it.reason = p.time(), p.time(), p.string()
		}
		s.out[last] = it
	}
	return s, p.err
}

// apply does to the state what a record says.
func (s *state) apply(r record) {
	switch r.kind {
	case recordFirst:
		// A row that is newer than the record knows what became of it.
		if r.seq >= s.next {
			s.next, s.looked = r.seq+1, r.seq
			s.out[r.seq] = itemState{attempt: 1, held: true}
		}
	case recordPassed:
		s.missed = r.missed
		if r.seq > s.next {
			s.next, s.looked = r.seq, r.seq-1
		}
	case recordSettled, recordRemoved:
		delete(s.out, r.seq)
	case recordWaiting:
		s.out[r.seq] = itemState{attempt: r.attempt, due: r.due, failed: r.failed, reason: r.reason}
	case recordDying:
		s.out[r.seq] = itemState{attempt: r.attempt, dying: true, failed: r.failed, reason: r.reason}
	case recordHeld:
		it := s.out[r.seq]
		it.attempt, it.held, it.due = r.attempt, true, time.Time{}
		s.out[r.seq] = it
	case recordLeft:
		s.left = r.due
	}
}

// settings are what is stored of a subscription beside its position.
type settings struct {
	Incarnation   uint64
	Name          string
	DeadLettersOf string `json:",omitempty"`
	Types         []string
	AckWait       time.Duration
	MaxInFlight   int
	MaxAttempts   int
	Expires       time.Duration
	Start         messaging.Start
}

// settingsFormat begins the row of settings.
const settingsFormat = 1

func encodeSettings(inc uint64, s messaging.Subscription) []byte {
	b, err := json.Marshal(settings{inc, s.Name, s.DeadLettersOf, s.Types, s.AckWait, s.MaxInFlight, s.MaxAttempts, s.Expires, s.Start})
	if err != nil {
		panic(err) // they are numbers and strings
	}
	return append([]byte{settingsFormat}, b...)
}

func parseSettings(b []byte) (inc uint64, sub messaging.Subscription, err error) {
	if len(b) == 0 || b[0] != settingsFormat {
		return 0, sub, fmt.Errorf("the row of a subscription is in another format than %d, the only one that this version knows: %.16q", settingsFormat, b)
	}
	var s settings
	if err := json.Unmarshal(b[1:], &s); err != nil {
		return 0, sub, fmt.Errorf("the row of a subscription: %w", err)
	}
	sub, err = messaging.Subscription{
		Name: s.Name, DeadLettersOf: s.DeadLettersOf, Types: s.Types, AckWait: s.AckWait,
		MaxInFlight: s.MaxInFlight, MaxAttempts: s.MaxAttempts, Expires: s.Expires,
	}.Normalize()
	sub.Start = s.Start
	return s.Incarnation, sub, err
}
