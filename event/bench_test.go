package event_test

import (
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

func BenchmarkAppendAttributes(b *testing.B) {
	benchmark(b, func(_ *testing.B, e event.Event) func() error {
		var buffer []byte
		return func() (err error) {
			buffer, err = event.AppendAttributes(buffer[:0], e)
			return err
		}
	})
}

func BenchmarkParseAttributes(b *testing.B) {
	benchmark(b, func(b *testing.B, e event.Event) func() error {
		flat, err := event.AppendAttributes(nil, e)
		if err != nil {
			b.Fatal(err)
		}
		attributes := string(flat)
		return func() error {
			_, err := event.ParseAttributes(attributes, e.Data())
			return err
		}
	})
}
