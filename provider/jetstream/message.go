package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A message is one that the server has sent to a member: what Info.Native is.
// It implements [natsjs.Msg], whose acknowledgements go to the server as they
// are, outside of what the delivery knows of itself.
type message struct {
	*nats.Msg
	of        *incarnation // that sent it
	sequence  uint64
	delivery  uint64 // its number among all deliveries of the consumer
	delivered int    // how often it was, by the server's count
	stored    time.Time
	arrived   time.Time

	// Below: under the member's mu, while it is in the member's keeping; then of
	// whoever took it out.
	credit  int       // of delivered, how many were given back and not failures
	counted bool      // credit is known
	lease   time.Time // the server's AckWait began then, or later
	probed  time.Time // when the last extension was asked for; zero: answered
	handled bool      // out of the member's keeping
	storing bool      // its letter is being stored, and who does that settles it
}

// The acknowledgements of JetStream.
const (
	ackDone     = "+ACK"
	ackNak      = "-NAK"
	ackProgress = "+WPI"
	ackTerm     = "+TERM"
)

// newMessage returns the message, or an error if it is not from that incarnation
// of the subscription.
func newMessage(msg *nats.Msg, of *incarnation, lease time.Time) (*message, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	if meta.Consumer != of.name || meta.Stream != of.stream {
		return nil, errForeign
	}
	return &message{
		Msg:       msg,
		of:        of,
		sequence:  meta.Sequence.Stream,
		delivery:  meta.Sequence.Consumer,
		delivered: int(meta.NumDelivered),
		counted:   meta.NumDelivered == 1,
		stored:    meta.Timestamp,
		arrived:   time.Now(),
		lease:     lease,
	}, nil
}

// errForeign is why a message is left alone: the subscription was moved since.
var errForeign = errors.New("jetstream: a message of another consumer")

// attempt is the number of the delivery: failures count, what was given back
// does not [RCV-2].
func (m *message) attempt() int { return max(1, m.delivered-m.credit) }

var _ natsjs.Msg = (*message)(nil)

func (m *message) Metadata() (*natsjs.MsgMetadata, error) {
	meta, err := m.Msg.Metadata()
	if err != nil {
		return nil, err
	}
	return &natsjs.MsgMetadata{
		Sequence:     natsjs.SequencePair{Consumer: meta.Sequence.Consumer, Stream: meta.Sequence.Stream},
		NumDelivered: meta.NumDelivered,
		NumPending:   meta.NumPending,
		Timestamp:    meta.Timestamp,
		Stream:       meta.Stream,
		Consumer:     meta.Consumer,
		Domain:       meta.Domain,
	}, nil
}

func (m *message) Data() []byte         { return m.Msg.Data }
func (m *message) Headers() nats.Header { return m.Msg.Header }
func (m *message) Subject() string      { return m.Msg.Subject }
func (m *message) Reply() string        { return m.Msg.Reply }

func (m *message) Ack() error        { return m.Respond([]byte(ackDone)) }
func (m *message) Nak() error        { return m.Respond([]byte(ackNak)) }
func (m *message) InProgress() error { return m.Respond([]byte(ackProgress)) }
func (m *message) Term() error       { return m.Respond([]byte(ackTerm)) }

func (m *message) DoubleAck(ctx context.Context) error { return m.Msg.AckSync(nats.Context(ctx)) }

func (m *message) NakWithDelay(delay time.Duration) error { return m.Respond(nakAfter(delay)) }

func (m *message) TermWithReason(reason string) error {
	return m.Respond([]byte(ackTerm + " " + reason))
}

// nakAfter is the acknowledgement that asks for another delivery after a delay.
func nakAfter(delay time.Duration) []byte {
	if delay <= 0 {
		return []byte(ackNak)
	}
	return fmt.Appendf(nil, `%s {"delay": %d}`, ackNak, delay.Nanoseconds())
}
