package jetstream

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestNewMessage reads reply subjects of all forms, and compares what it reads
// with what the client does.
func TestNewMessage(t *testing.T) {
	of := &incarnation{stream: "log", name: "sub", replies: "$JS.ACK.log.sub."}
	for _, tt := range []struct {
		name, reply string
		ours, fast  bool // of the incarnation; by parseReply
	}{
		{"first delivery", "$JS.ACK.log.sub.1.20.30.1700000000123456789.5", true, true},
		{"third delivery", "$JS.ACK.log.sub.3.18446744073709551615.30.1.0", true, true},
		{"with a domain", "$JS.ACK.hub.hash.log.sub.2.20.30.1700000000123456789.5.random", true, false},
		{"without a domain's name", "$JS.ACK._.hash.log.sub.1.20.30.1700000000123456789.5.random", true, false},
		{"a domain and a hash like ours", "$JS.ACK.log.sub.log.sub.2.20.30.40.5.random", true, false},
		{"of another in such a domain", "$JS.ACK.log.sub.log.other.2.20.30.40.5.random", false, false},
		{"another consumer", "$JS.ACK.log.sub2.1.20.30.40.5", false, false},
		{"another stream", "$JS.ACK.log2.sub.1.20.30.40.5", false, false},
		{"a number too few", "$JS.ACK.log.sub.1.20.30.40", false, false},
		{"a number too many", "$JS.ACK.log.sub.1.20.30.40.5.6", false, false},
		{"no number", "$JS.ACK.log.sub.1.x.30.40.5", true, false},
		{"none", "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			msg := &nats.Msg{Sub: &nats.Subscription{}, Reply: tt.reply}
			now := time.Unix(1, 0)
			if fast := (&message{Msg: msg, of: of}).parseReply(); fast != tt.fast {
				t.Errorf("parseReply says %v, want %v", fast, tt.fast)
			}
			p, err := newMessage(msg, of, now)
			meta, bad := msg.Metadata()
			switch {
			case bad != nil:
				if err == nil || errors.Is(err, errForeign) {
					t.Errorf("error is %v, want like %v", err, bad)
				}
			case !tt.ours:
				if err != errForeign {
					t.Errorf("error is %v, want %v", err, errForeign)
				}
			case err != nil:
				t.Error(err)
			case p.delivered != int(meta.NumDelivered), p.sequence != meta.Sequence.Stream, p.delivery != meta.Sequence.Consumer,
				!p.stored.Equal(meta.Timestamp), p.counted != (meta.NumDelivered == 1), !p.arrived.Equal(now):
				t.Errorf("it is %+v, want what %+v says", p, meta)
			}
		})
	}
}
