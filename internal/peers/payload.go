package main

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/catchment-events/catchment/event"
)

// What every message is made of: 256 bytes of JSON, six attributes with id and
// data's type, and three extensions.
const (
	payloadSize  = 256
	specVersion  = "1.0"
	source       = "/shop/checkout"
	eventType    = "order.placed"
	subject      = "order/4711"
	contentType  = "application/json"
	eventTime    = "2026-01-02T03:04:05.6789Z"
	traceParent  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	partitionKey = "customer-42"
	tenant       = "acme"
)

// attributes are those of every message, but for the id, as a library without
// CloudEvents carries them.
var attributes = [...]struct{ name, value string }{
	{"specversion", specVersion},
	{"source", source},
	{"type", eventType},
	{"subject", subject},
	{"time", eventTime},
	{"datacontenttype", contentType},
	{"traceparent", traceParent},
	{"partitionkey", partitionKey},
	{"tenant", tenant},
}

var data = func() []byte {
	var b bytes.Buffer
	b.WriteString(`{"order":4711,"items":[{"sku":"A-00001","count":2,"price":19.95},{"sku":"A-00002","count":1,"price":5.5}],"comment":"`)
	for b.Len() < payloadSize-2 {
		b.WriteByte('.')
	}
	b.WriteString(`"}`)
	return b.Bytes()
}()

func newEvent() event.Event {
	e, err := event.New(source, eventType, json.RawMessage(data))
	if err != nil {
		panic(err) // it does not depend on anything
	}
	at, err := time.Parse(time.RFC3339Nano, eventTime)
	if err != nil {
		panic(err)
	}
	e.SetTime(at)
	e.SetSubject(subject)
	e.SetExtension("traceparent", traceParent)
	e.SetExtension("partitionkey", partitionKey)
	e.SetExtension("tenant", tenant)
	return e
}
