package event_test

import (
	"encoding/json"
	"testing"

	"github.com/catchment-events/catchment/event"
)

var sizes = []struct {
	name string
	n    int
}{{"256B", 256}, {"4KiB", 4 << 10}}

// benchmark runs f on an event of each size.
func benchmark(b *testing.B, prepare func(b *testing.B, e event.Event) (f func() error)) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			f := prepare(b, typical(size.n))
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	benchmark(b, func(_ *testing.B, e event.Event) func() error {
		return func() error { return event.Check(e) }
	})
}

func BenchmarkClone(b *testing.B) {
	benchmark(b, func(_ *testing.B, e event.Event) func() error {
		return func() error { event.Clone(e); return nil }
	})
}

func BenchmarkEqual(b *testing.B) {
	benchmark(b, func(_ *testing.B, e event.Event) func() error {
		other := event.Clone(e)
		return func() error { event.Equal(e, other); return nil }
	})
}

func BenchmarkEncode(b *testing.B) {
	benchmark(b, func(_ *testing.B, e event.Event) func() error {
		return func() error {
			_, err := event.NATS.Encode(e, make(map[string][]string, 16))
			return err
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	benchmark(b, func(b *testing.B, e event.Event) func() error {
		header := make(map[string][]string)
		body, err := event.NATS.Encode(e, header)
		if err != nil {
			b.Fatal(err)
		}
		return func() error {
			_, err := event.NATS.Decode(header, body)
			return err
		}
	})
}

func BenchmarkMarshal(b *testing.B) {
	benchmark(b, func(_ *testing.B, e event.Event) func() error {
		return func() error {
			_, err := event.Marshal(e)
			return err
		}
	})
}

func BenchmarkUnmarshal(b *testing.B) {
	benchmark(b, func(b *testing.B, e event.Event) func() error {
		text, err := event.Marshal(e)
		if err != nil {
			b.Fatal(err)
		}
		return func() error {
			_, err := event.Unmarshal(text)
			return err
		}
	})
}

// BenchmarkSDK is what the SDK's own codec takes for the same events.
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
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.New("https://shop.example.com/orders", "order.created", nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	p := manyPatterns(b)
	b.ReportAllocs()
	for b.Loop() {
		if !p.Match("com.example.t63.s15.created") {
			b.Fatal("no match")
		}
	}
}
