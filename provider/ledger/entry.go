package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// The first byte of each event that is stored: its format. After it comes the
// type, by which subscriptions select.
const (
	formatEvent   = 1 // then the attributes, as package event writes them, and the data
	formatMessage = 2 // then the headers and the body of a message that may be no event
)

// appendEvent appends an event as it is stored.
func appendEvent(b []byte, e event.Event) ([]byte, error) {
	b = append(b, formatEvent)
	b = appendBytes(b, e.Type())
	// The length of the attributes stands before them. Two bytes hold what
	// nearly all have; the rest moves up for a third.
	at := len(b)
	b = append(b, 0, 0)
	b, err := event.AppendAttributes(b, e)
	if err != nil {
		return nil, err
	}
	n := uint64(len(b) - at - 2)
	if n < 1<<14 {
		b[at], b[at+1] = byte(n)|0x80, byte(n>>7)
	} else {
		b = slices.Insert(b, at, 0)
		binary.PutUvarint(b[at:at+3], n)
	}
	return append(b, e.DataEncoded...), nil
}

// appendMessage appends a message as it is stored.
func appendMessage(b []byte, typ string, header map[string][]string, body []byte) []byte {
	b = append(b, formatMessage)
	b = appendBytes(b, typ)
	b = binary.AppendUvarint(b, uint64(len(header)))
	for name, values := range header {
		b = appendBytes(b, name)
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, v := range values {
			b = appendBytes(b, v)
		}
	}
	return append(b, body...)
}

// eventType returns the type of a stored event, which shares its memory.
func eventType(data []byte) ([]byte, error) {
	p := parser{b: data}
	p.byte()
	typ := p.bytes()
	return typ, p.err
}

// decode returns the event of stored data, and an error and the raw form for
// what is none. The event shares nothing with data.
func decode(data []byte) (event.Event, *messaging.DecodeError) {
	p := parser{b: data}
	format := p.byte()
	p.bytes()
	switch {
	case p.err != nil:
	case format == formatEvent:
		attributes := p.bytes()
		if p.err != nil {
			break
		}
		e, err := event.ParseAttributes(string(attributes), bytes.Clone(p.b))
		if err != nil {
			return event.Event{}, &messaging.DecodeError{Body: bytes.Clone(data), Err: err}
		}
		return e, nil
	case format == formatMessage:
		header, body := parseMessage(&p)
		if p.err != nil {
			break
		}
		e, err := event.NATS.Decode(header, body)
		if err != nil {
			return event.Event{}, &messaging.DecodeError{Header: header, Body: body, Err: err}
		}
		return e, nil
	default:
		p.err = fmt.Errorf("the event is in format %d, which this version does not know", format)
	}
	return event.Event{}, &messaging.DecodeError{Body: bytes.Clone(data), Err: p.err}
}

// parseMessage takes the rest of a message apart. It shares nothing.
func parseMessage(p *parser) (header map[string][]string, body []byte) {
	n := p.uvarint()
	if n > uint64(len(p.b)) { // each takes two bytes at least
		p.fail()
		return nil, nil
	}
	header = make(map[string][]string, n)
	for range n {
		name, count := p.string(), p.uvarint()
		if count > uint64(len(p.b)) {
			p.fail()
			return nil, nil
		}
		values := make([]string, count)
		for i := range values {
			values[i] = p.string()
		}
		header[name] = values
	}
	return header, bytes.Clone(p.b)
}

// eventID is what duplicates share [PUB-3].
func eventID(source, id string) [16]byte {
	var room [256]byte
	b := append(room[:0], source...)
	b = append(b, 0)
	sum := sha256.Sum256(append(b, id...))
	return [16]byte(sum[:16])
}

// letterFormat begins each dead letter that is stored.
const letterFormat = 1

// appendLetter appends a dead letter as it is stored: when it was, what is said
// of it, and the event as it stands in the log.
func appendLetter(b []byte, stored time.Time, d messaging.DeadLetter, data []byte) []byte {
	b = append(b, letterFormat)
	b = appendTime(b, stored)
	b = appendBytes(b, d.Subscription)
	b = appendBytes(b, d.Reason)
	b = binary.AppendUvarint(b, uint64(d.Attempts))
	b = binary.AppendUvarint(b, d.Sequence)
	b = appendTime(b, d.Stored)
	b = appendTime(b, d.Died)
	return append(b, data...)
}

// parseLetter takes a dead letter apart. data is the event, and shares memory.
func parseLetter(b []byte) (stored time.Time, d messaging.DeadLetter, data []byte, err error) {
	p := parser{b: b}
	if f := p.byte(); p.err == nil && f != letterFormat {
		return stored, d, nil, fmt.Errorf("the dead letter is in format %d, but this version knows format %d only", f, letterFormat)
	}
	stored = p.time()
	d = messaging.DeadLetter{
		Subscription: p.string(),
		Reason:       p.string(),
		Attempts:     p.int(),
		Sequence:     p.uvarint(),
		Stored:       p.time(),
		Died:         p.time(),
	}
	return stored, d, p.b, p.err
}
