package event_test

import (
	"bytes"
	stdcontext "context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"

	"github.com/catchment-events/catchment/event"
)

// BenchmarkSDK is what the SDK's own codecs take for the same events. Its message
// in string headers is the one below, which does no more than its protocol for NATS
// JetStream has to, and less than Binding does: no escapes, no checks. The protocol
// itself is measured in internal/peers.
func BenchmarkSDK(b *testing.B) {
	b.Run("Marshal", func(b *testing.B) {
		benchmark(b, func(_ *testing.B, e event.Event) func() error {
			return func() error {
				_, err := json.Marshal(e)
				return err
			}
		})
	})
	b.Run("Unmarshal", func(b *testing.B) {
		benchmark(b, func(b *testing.B, e event.Event) func() error {
			text, err := event.Marshal(e)
			if err != nil {
				b.Fatal(err)
			}
			return func() error {
				var e event.Event
				return json.Unmarshal(text, &e)
			}
		})
	})
	ctx := binding.WithForceBinary(stdcontext.Background())
	b.Run("Encode", func(b *testing.B) {
		benchmark(b, func(_ *testing.B, e event.Event) func() error {
			return func() error {
				m := sdkMessage{header: make(map[string][]string)}
				_, err := binding.Write(ctx, (*binding.EventMessage)(&e), nil, &m)
				return err
			}
		})
	})
	b.Run("Decode", func(b *testing.B) {
		benchmark(b, func(b *testing.B, e event.Event) func() error {
			m := sdkMessage{header: make(map[string][]string)}
			var err error
			if m.body, err = event.NATS.Encode(e, m.header); err != nil {
				b.Fatal(err)
			}
			if got, err := binding.ToEvent(ctx, &m); err != nil || !event.Equal(e, *got) {
				b.Fatalf("got %v, %v", got, err)
			}
			return func() error {
				_, err := binding.ToEvent(ctx, &m)
				return err
			}
		})
	})
}

// An sdkMessage is a message in string headers, as the SDK reads and writes it.
type sdkMessage struct {
	header map[string][]string
	body   []byte
}

const sdkPrefix = "ce-"

var sdkSpecs = spec.WithPrefix(sdkPrefix)

func (m *sdkMessage) ReadEncoding() binding.Encoding { return binding.EncodingBinary }

func (m *sdkMessage) ReadStructured(stdcontext.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m *sdkMessage) ReadBinary(_ stdcontext.Context, w binding.BinaryWriter) error {
	version := sdkSpecs.Version(m.header[sdkPrefix+"specversion"][0])
	for name, values := range m.header {
		if !strings.HasPrefix(name, sdkPrefix) {
			continue
		}
		var err error
		if attribute := version.Attribute(name); attribute != nil {
			err = w.SetAttribute(attribute, values[0])
		} else {
			err = w.SetExtension(strings.TrimPrefix(name, sdkPrefix), values[0])
		}
		if err != nil {
			return err
		}
	}
	return w.SetData(bytes.NewReader(m.body))
}

func (m *sdkMessage) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	version := sdkSpecs.Version(m.header[sdkPrefix+"specversion"][0])
	attribute := version.AttributeFromKind(kind)
	if values := m.header[attribute.PrefixedName()]; len(values) > 0 {
		return attribute, values[0]
	}
	return attribute, nil
}

func (m *sdkMessage) GetExtension(name string) any {
	if values := m.header[sdkPrefix+name]; len(values) > 0 {
		return values[0]
	}
	return nil
}

func (m *sdkMessage) Finish(error) error { return nil }

func (m *sdkMessage) SetStructuredEvent(stdcontext.Context, format.Format, io.Reader) error {
	return errors.New("the event is not in binary mode")
}

func (m *sdkMessage) Start(stdcontext.Context) error { return nil }

func (m *sdkMessage) SetAttribute(attribute spec.Attribute, value any) error {
	if value != nil {
		m.header[sdkPrefix+attribute.Name()] = []string{fmt.Sprint(value)}
	}
	return nil
}

func (m *sdkMessage) SetExtension(name string, value any) error {
	if value != nil {
		m.header[sdkPrefix+name] = []string{fmt.Sprint(value)}
	}
	return nil
}

func (m *sdkMessage) SetData(data io.Reader) (err error) {
	m.body, err = io.ReadAll(data)
	return err
}

func (m *sdkMessage) End(stdcontext.Context) error { return nil }
