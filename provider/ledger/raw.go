package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/catchment-events/catchment/messaging"
)

// rawFormat begins the row of a message that a subscription could not decode.
const rawFormat = 1

// keepRaw stores what a subscription could not decode [RCV-5]. Its sequence is
// its name: keeping it twice changes nothing.
func (b *Broker) keepRaw(bad *messaging.DecodeError) error {
	v := binary.AppendUvarint([]byte{rawFormat}, bad.Sequence)
	v = appendBytes(v, bad.Err.Error())
	v = appendMessage(v, "", bad.Header, bad.Body)
	batch := b.db.NewBatch()
	defer batch.Close()
	if err := batch.Set(rawKey(bad.Subscription, bad.Sequence), v, nil); err != nil {
		return err
	}
	return b.commit(batch, true)
}

func parseRaw(name string, v []byte) (*messaging.DecodeError, error) {
	p := parser{b: v}
	if f := p.byte(); p.err == nil && f != rawFormat {
		return nil, fmt.Errorf("the row of a message is in format %d, but this version knows format %d only", f, rawFormat)
	}
	bad := &messaging.DecodeError{Subscription: name, Sequence: p.uvarint(), Err: errors.New(p.string())}
	p.byte()
	p.bytes()
	bad.Header, bad.Body = parseMessage(&p)
	if len(bad.Header) == 0 {
		bad.Header = nil
	}
	return bad, p.err
}

func (b *Broker) eachRaw(name string, do func(value []byte) error) error {
	return b.scan(rawKey(name, 0), rawKey(name, 1<<64-1), func(_, v []byte) error { return do(v) })
}

func (b *Broker) countRaw(name string) (n int, err error) {
	err = b.eachRaw(name, func([]byte) error { n++; return nil })
	return n, err
}
