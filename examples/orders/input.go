package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
)

// An input is a file of events in the CloudEvents JSON format, one after
// another, each in a line or not. What is no valid event is refused, which the
// user is told, and the rest goes on.
type input struct {
	name    string
	file    io.ReadCloser
	out     *log.Logger
	refused int
}

// openInput opens a file. It returns nil for "".
func openInput(name string, stdin io.Reader, out *log.Logger) (*input, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return &input{name: "stdin", file: io.NopCloser(stdin), out: out}, nil
	}
	f, err := os.Open(name)
	return &input{name: name, file: f, out: out}, err
}

// An item is what an input holds at a line: an event, or an error. One that is
// fatal is the last.
type item struct {
	line    int
	event   event.Event
	lowered []string // names that had upper-case letters
	err     error
	fatal   bool
}

// publish is the feed of an input.
func (in *input) publish(ctx context.Context, p messaging.Publisher) error {
	const batch = 100
	items := make(chan item, batch) // so that a batch forms while another is stored
	// Nothing ends a read of standard input. A goroutine that is in one when
	// ctx ends is left behind, and ends with the program.
	go func() {
		defer close(items)
		defer in.file.Close()
		in.read(ctx, items)
	}()
	var ready []item
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case it, more := <-items:
			switch {
			case !more:
				return nil
			case it.fatal:
				return fmt.Errorf("%s:%d: %w", in.name, it.line, it.err)
			case it.err != nil:
				in.refuse(it, it.err)
			default:
				if it.lowered != nil {
					in.out.Printf("%s:%d: event %q: CloudEvents has no upper-case letters in names; made lower-case: %q", in.name, it.line, it.event.ID(), it.lowered)
				}
				ready = append(ready, it)
			}
		}
		if len(ready) == batch || len(ready) > 0 && len(items) == 0 {
			if err := in.store(ctx, p, ready); err != nil {
				return err
			}
			ready = nil
		}
	}
}

// store publishes events. If the broker objects to one of them it stores none,
// so then each is on its own.
func (in *input) store(ctx context.Context, p messaging.Publisher, items []item) error {
	events := make([]event.Event, len(items))
	for i, it := range items {
		events[i] = it.event
	}
	err := publish(ctx, p, events...)
	switch {
	case !errors.Is(err, messaging.ErrInvalid) && !errors.Is(err, messaging.ErrTooLarge):
		return err
	case len(items) == 1:
		in.refuse(items[0], err)
		return nil
	}
	for i := range items {
		if err := in.store(ctx, p, items[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (in *input) refuse(it item, err error) {
	in.refused++
	in.out.Printf("%s:%d: refused: %v", in.name, it.line, err)
}

// read sends what is in the file, until its end or that of ctx.
func (in *input) read(ctx context.Context, items chan<- item) {
	for values := newValues(in.file); ; {
		var it item
		var value json.RawMessage
		value, it.line, it.err = values.next()
		switch {
		case it.err == io.EOF:
			return
		case it.err == nil:
			it.event, it.lowered, it.err = decode(value)
		default:
			it.fatal = !isBroken(it.err)
		}
		select {
		case items <- it:
		case <-ctx.Done():
			return
		}
		if it.fatal {
			return
		}
	}
}

// decode returns an event. Some producers send attribute names with upper-case
// letters, which event.Unmarshal refuses, and rightly so: the broker's other
// users would not understand them. This is the edge where such names are made
// lower-case, and returned.
func decode(raw []byte) (event.Event, []string, error) {
	e, err := event.Unmarshal(raw)
	if err == nil {
		return e, nil, nil
	}
	lower, names := lowerNames(raw)
	if names == nil {
		return e, nil, err
	}
	e, err = event.Unmarshal(lower)
	return e, names, err
}

// lowerNames returns a JSON object with the names of its members in lower case,
// and those that were not. It keeps everything else as it is, also two members
// of the same name.
func lowerNames(object []byte) (lower []byte, names []string) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, nil
	}
	for separator := "{"; dec.More(); separator = "," {
		var value json.RawMessage
		token, err := dec.Token()
		name, _ := token.(string)
		if err != nil || dec.Decode(&value) != nil {
			return nil, nil
		}
		if strings.ToLower(name) != name {
			names = append(names, name)
		}
		quoted, _ := json.Marshal(strings.ToLower(name)) // a string
		lower = append(append(append(append(lower, separator...), quoted...), ':'), value...)
	}
	return append(lower, '}'), names
}

// A values reads JSON values one after another, and behind a broken one goes on
// at the next line that begins with a brace.
type values struct {
	file  io.Reader
	dec   *json.Decoder
	ahead bytes.Buffer // what dec has read behind the last value
	base  int64        // the offset of ahead, as dec counts
	line  int          // and the line
}

func newValues(file io.Reader) *values {
	v := &values{file: file, line: 1}
	v.restart()
	return v
}

// restart begins anew with what is ahead.
func (v *values) restart() {
	v.file = io.MultiReader(bytes.NewReader(bytes.Clone(v.ahead.Bytes())), v.file)
	v.ahead.Reset()
	v.base = 0
	v.dec = json.NewDecoder(io.TeeReader(v.file, &v.ahead))
}

// pass leaves n bytes behind.
func (v *values) pass(n int) {
	v.line += bytes.Count(v.ahead.Next(n), []byte("\n"))
	v.base += int64(n)
}

// next returns the next value and the line where it begins. A broken value is
// a *json.SyntaxError or io.ErrUnexpectedEOF; after any other error, of which
// io.EOF is one, there is nothing more.
func (v *values) next() (value json.RawMessage, line int, err error) {
	err = v.dec.Decode(&value)
	ahead := v.ahead.Bytes()
	v.pass(len(ahead) - len(bytes.TrimLeft(ahead, " \t\r\n")))
	line = v.line
	if err == nil {
		v.pass(int(v.dec.InputOffset() - v.base))
		return value, line, nil
	}
	if isBroken(err) {
		v.skip()
	}
	return nil, line, err
}

func isBroken(err error) bool {
	_, ok := errors.AsType[*json.SyntaxError](err)
	return ok || err == io.ErrUnexpectedEOF
}

// skip leaves a broken value behind.
func (v *values) skip() {
	for chunk := make([]byte, 4096); ; {
		if i := bytes.Index(v.ahead.Bytes(), []byte("\n{")); i >= 0 {
			v.pass(i + 1)
			break
		}
		v.pass(max(0, v.ahead.Len()-1)) // the last byte may be the \n
		n, err := v.file.Read(chunk)
		v.ahead.Write(chunk[:n])
		if n == 0 && err != nil { // which comes again, to dec
			v.pass(v.ahead.Len())
			break
		}
	}
	v.restart()
}
