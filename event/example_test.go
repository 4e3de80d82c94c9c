package event_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/catchment-events/catchment/event"
)

type order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

func ExampleNew() {
	e, err := event.New("https://shop.example.com/orders", "order.created", order{ID: "o-1", Cents: 1250})
	if err != nil {
		fmt.Println(err)
		return
	}
	e.SetSubject("o-1")
	fmt.Println(e.Type(), "from", e.Source())
	fmt.Println(e.DataContentType(), string(e.Data()))
	// Output:
	// order.created from https://shop.example.com/orders
	// application/json {"id":"o-1","cents":1250}
}

func ExampleCheck() {
	e, err := event.New("/orders", "order.created", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	e.SetSubject("a\nb")
	fmt.Println(event.Check(e))
	// Output: event: attribute "subject": has a control character
}

func ExampleClone() {
	a, err := event.New("/orders", "order.created", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := event.Clone(a)
	b.SetType("order.paid") // after b := a, this would change a too
	fmt.Println(a.Type(), b.Type(), event.Equal(a, b))
	// Output: order.created order.paid false
}

func ExampleEqual() {
	a, err := event.New("/orders", "order.created", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := event.Clone(a)
	a.SetExtension("priority", 3)
	b.SetExtension("priority", "3")
	fmt.Println(event.Equal(a, b))
	// Output: true
}

func ExampleData() {
	e, err := event.New("/orders", "order.created", order{ID: "o-1", Cents: 1250})
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := event.Data[order](e)
	fmt.Println(o.ID, o.Cents, err)
	// Output: o-1 1250 <nil>
}

func ExampleParsePattern() {
	p, err := event.ParsePattern("order.*", "payment.>")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Match("order.created"), p.Match("order.item.added"), p.Match("payment.card.refused"))

	_, err = event.ParsePattern("order*")
	fmt.Println(err)
	// Output:
	// true false true
	// event: pattern "order*": * or > inside a longer token; a pattern is dot-separated tokens, * is any one token, a final > is one or more tokens
}

func ExampleMarshal() {
	e := sdk.New()
	e.SetID("1")
	e.SetSource("/orders")
	e.SetType("order.created")
	if err := e.SetData("application/json", order{ID: "o-1", Cents: 1250}); err != nil {
		fmt.Println(err)
		return
	}
	b, err := event.Marshal(e)
	fmt.Println(string(b), err)
	// Output: {"specversion":"1.0","id":"1","source":"/orders","type":"order.created","datacontenttype":"application/json","data":{"id":"o-1","cents":1250}} <nil>
}

func ExampleUnmarshal() {
	e, err := event.Unmarshal([]byte(`{"specversion":"1.0","id":"1","source":"/orders","type":"order.created","priority":3,"data":{"id":"o-1"}}`))
	fmt.Println(e.Type(), e.Extensions()["priority"], string(e.Data()), err)

	_, err = event.Unmarshal([]byte(`{"specversion":"1.0","id":"1","source":"/orders","type":"order.created","priority":1.5}`))
	fmt.Println(err)
	// Output:
	// order.created 3 {"id":"o-1"} <nil>
	// event: attribute "priority": is a number other than an integer in the range of int32
}

func ExampleBinding() {
	e := sdk.New()
	e.SetID("1")
	e.SetSource("/orders")
	e.SetType("order.created")
	e.SetSubject("10 €")

	header := make(map[string][]string)
	body, err := event.NATS.Encode(e, header)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		fmt.Println(name+":", header[name][0])
	}

	got, err := event.NATS.Decode(header, body)
	fmt.Println(event.Equal(e, got), err)
	// Output:
	// ce-id: 1
	// ce-source: /orders
	// ce-specversion: 1.0
	// ce-subject: 10%20%E2%82%AC
	// ce-type: order.created
	// true <nil>
}

func ExampleAppendAttributes() {
	e, err := event.New("/orders", "order.created", map[string]int{"order": 1})
	if err != nil {
		panic(err)
	}
	e.SetID("1")

	// A store keeps both, however it likes.
	stored, err := event.AppendAttributes(nil, e)
	if err != nil {
		panic(err)
	}
	data := bytes.Clone(e.Data())

	got, err := event.ParseAttributes(string(stored), data)
	if err != nil {
		panic(err)
	}
	fmt.Println(got.ID(), got.Type(), string(got.Data()))
	fmt.Printf("%q\n", event.AppendIdentity(nil, got))
	// Output:
	// 1 order.created {"order":1}
	// "/orders\x001"
}
