package provider_test

import (
	"testing"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/examples/provider"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		Open: func(t *testing.T) conformance.Broker {
			b := provider.New()
			t.Cleanup(func() { b.Close() })
			return b
		},
		Capabilities: conformance.OrderedPublish | conformance.ExactAttempts | conformance.ConfirmedAck | conformance.Fenced,
		Bubble:       true,
	})
}
