package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/event"
)

// Names of the codecs, and of what they do.
const (
	ourCodec = "catchment event.NATS"
	sdkCodec = "CloudEvents SDK v2"
	encode   = "encode"
	decode   = "decode"
)

// codecRuns is how often a codec is called in one measurement.
const codecRuns = 20_000

// codecs measures encoding an event into headers, and decoding it again.
func (m *machine) codecs(r *results) error {
	e := newFeed(1).take(1)[0]
	header := make(nats.Header)
	body, err := event.NATS.Encode(e, header)
	if err != nil {
		return err
	}
	msg := &nats.Msg{Header: header, Data: body}
	ctx := binding.WithForceBinary(context.Background())
	all := []struct {
		key
		once func() error
	}{
		{key{ourCodec, encode}, func() error {
			_, err := event.NATS.Encode(e, make(nats.Header, 12))
			return err
		}},
		{key{sdkCodec, encode}, func() error {
			_, err := cejs.WriteMsg(ctx, (*binding.EventMessage)(&e), new(bytes.Buffer))
			return err
		}},
		{key{ourCodec, decode}, func() error {
			_, err := event.NATS.Decode(msg.Header, msg.Data)
			return err
		}},
		{key{sdkCodec, decode}, func() error {
			_, err := binding.ToEvent(ctx, cejs.NewMessage(msg))
			return err
		}},
	}
	for range m.rounds {
		for _, c := range all {
			if !matches(m.match, "codec", c.key) {
				continue
			}
			got, err := clock(codecRuns, func() error {
				for range codecRuns {
					if err := c.once(); err != nil {
						return fmt.Errorf("%s, %s: %w", c.system, c.workload, err)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			r.codec[c.key] = append(r.codec[c.key], got)
		}
	}
	return nil
}

func matches(re *regexp.Regexp, group string, k key) bool {
	return re.MatchString(group + "/" + k.system + "/" + k.workload)
}

// perCall is the median of nanoseconds that a codec takes; 0: not measured.
func (r *results) perCall(codec, what string) float64 {
	return median(r.codec[key{codec, what}], func(s sample) float64 { return 1e9 / s.perSecond() })
}

func (r *results) codecAllocs(codec, what string) float64 {
	return median(r.codec[key{codec, what}], sample.allocs)
}
