package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	noted   bool      // this delivery is noted as given back
	notes   int       // that were written of it
	lease   time.Time // the server's AckWait began then, or later
	probed  time.Time // when the last extension was asked for; zero: answered
	handled bool      // out of the member's keeping
	dying   bool      // its letter is to be stored, and who does that settles it

	handed handed // its delivery, once there is one: here, to be one piece of memory
}

// The acknowledgements of JetStream.
var (
	ackDone     = []byte("+ACK")
	ackNak      = []byte("-NAK")
	ackProgress = []byte("+WPI")
	ackTerm     = []byte("+TERM")
)

// newMessage returns the message that has arrived now, or an error if it is not
// from that incarnation of the subscription. Its lease is for the member to set.
func newMessage(msg *nats.Msg, of *incarnation, now time.Time) (*message, error) {
	p := &message{Msg: msg, of: of, arrived: now}
	if p.parseReply() {
		return p, nil
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	if meta.Consumer != of.name || meta.Stream != of.stream {
		return nil, errForeign
	}
	p.place(meta.NumDelivered, meta.Sequence.Stream, meta.Sequence.Consumer, meta.Timestamp)
	return p, nil
}

// parseReply is Metadata for the form of a reply subject that servers write by
// default, without a slice of its tokens for each message. It reports whether the
// subject has that form, and is of the incarnation; of any other it takes nothing.
func (m *message) parseReply() bool {
	rest, ok := strings.CutPrefix(m.Msg.Reply, m.of.replies)
	if !ok {
		return false
	}
	var numbers [5]uint64 // delivered, in the stream, of the consumer, stored, pending
	for i := range numbers {
		token, after, more := strings.Cut(rest, ".")
		n, err := strconv.ParseUint(token, 10, 64)
		if err != nil || more != (i < len(numbers)-1) {
			return false
		}
		numbers[i], rest = n, after
	}
	m.place(numbers[0], numbers[1], numbers[2], time.Unix(0, int64(numbers[3])))
	return true
}

// place notes where the message stands, by the server's numbers.
func (m *message) place(delivered, sequence, delivery uint64, stored time.Time) {
	m.delivered, m.sequence, m.delivery, m.stored = int(delivered), sequence, delivery, stored
	m.counted = delivered == 1
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

func (m *message) Ack() error        { return m.Respond(ackDone) }
func (m *message) Nak() error        { return m.Respond(ackNak) }
func (m *message) InProgress() error { return m.Respond(ackProgress) }
func (m *message) Term() error       { return m.Respond(ackTerm) }

func (m *message) DoubleAck(ctx context.Context) error { return m.Msg.AckSync(nats.Context(ctx)) }

func (m *message) NakWithDelay(delay time.Duration) error { return m.Respond(nakAfter(delay)) }

func (m *message) TermWithReason(reason string) error {
	return m.Respond(fmt.Appendf(nil, "%s %s", ackTerm, reason))
}

// nakAfter is the acknowledgement that asks for another delivery after a delay.
func nakAfter(delay time.Duration) []byte {
	if delay <= 0 {
		return ackNak
	}
	return fmt.Appendf(nil, `%s {"delay": %d}`, ackNak, delay.Nanoseconds())
}
