package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// A queue in a few lines. FS puts it into memory here; without it, it is in a
// directory of the machine.
func Example() {
	ctx := context.Background()
	opts := &queue.Options{FS: vfs.NewMem()}
	q, err := queue.Open("orders", opts)
	if err != nil {
		panic(err)
	}
	mailer, err := q.Consumer("mailer", nil)
	if err != nil {
		panic(err)
	}
	for _, order := range []string{"tea", "rice", "salt"} {
		if err := q.Append(ctx, queue.Record{Data: []byte(order)}); err != nil {
			panic(err)
		}
	}
	e, err := mailer.Next(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d %s\n", e.Seq, e.Data)
	if err := mailer.Settle(e.Seq); err != nil {
		panic(err)
	}
	if err := q.Close(); err != nil {
		panic(err)
	}

	// The next process goes on where this one was.
	if q, err = queue.Open("orders", opts); err != nil {
		panic(err)
	}
	defer q.Close()
	if mailer, err = q.Consumer("mailer", nil); err != nil {
		panic(err)
	}
	if e, err = mailer.Next(ctx); err != nil {
		panic(err)
	}
	fmt.Printf("%d %s\n", e.Seq, e.Data)
	// Output:
	// 1 tea
	// 2 rice
}

// exampleLedger returns a ledger in memory.
func exampleLedger() (*queue.Ledger, *pebble.DB) {
	db, guard, err := queue.OpenDB("dir", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		panic(err)
	}
	l, err := queue.OpenLedger(db, []byte("ledger/"), &queue.LedgerOptions{Failed: guard.Err})
	if err != nil {
		panic(err)
	}
	return l, db
}

func ExampleLedger() {
	l, db := exampleLedger()
	defer db.Close()
	first, err := l.Append(queue.Record{Data: []byte("a")}, queue.Record{Data: []byte("b")}, queue.Record{Data: []byte("c")})
	if err != nil {
		panic(err)
	}
	fmt.Println("stored from", first, "to", l.Next()-1)
	if err := l.DeleteTo(2); err != nil {
		panic(err)
	}
	entries, err := l.Read(1, 10, 0)
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		fmt.Printf("%d %s\n", e.Seq, e.Data)
	}
	// Output:
	// stored from 1 to 3
	// 2 b
	// 3 c
}

// To follow a ledger without missing an entry, ask for the channel before looking
// whether there is something to read.
func ExampleLedger_Changed() {
	l, db := exampleLedger()
	defer db.Close()
	done := make(chan bool)
	go func() {
		defer close(done)
		for seq := uint64(1); seq <= 3; {
			changed := l.Changed()
			entries, err := l.Read(seq, 0, 0)
			if err != nil {
				panic(err)
			}
			for _, e := range entries {
				fmt.Printf("%s\n", e.Data)
				seq = e.Seq + 1
			}
			if len(entries) == 0 {
				<-changed
			}
		}
	}()
	for _, s := range []string{"a", "b", "c"} {
		if _, err := l.Append(queue.Record{Data: []byte(s)}); err != nil {
			panic(err)
		}
	}
	<-done
	// Output:
	// a
	// b
	// c
}

func ExampleProducer() {
	l, db := exampleLedger()
	defer db.Close()
	p := queue.NewProducer(l, &queue.ProducerOptions{Duplicates: 2 * time.Minute, MaxEntries: 2})
	defer p.Close()
	ctx := context.Background()
	fmt.Println(p.Append(ctx, queue.Record{ID: [16]byte{1}, Data: []byte("a")}))
	fmt.Println(p.Append(ctx, queue.Record{ID: [16]byte{1}, Data: []byte("a")})) // is there already
	fmt.Println(p.Append(ctx, queue.Record{ID: [16]byte{2}, Data: []byte("b")}))
	fmt.Println(p.Append(ctx, queue.Record{ID: [16]byte{3}, Data: []byte("c")}))
	fmt.Println(l.Len(), "entries")
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// queue: full: more than 2 entries
	// 2 entries
}

func ExampleProducer_AppendFunc() {
	l, db := exampleLedger()
	defer db.Close()
	p := queue.NewProducer(l, nil)
	for i := range 3 {
		err := p.AppendFunc(context.Background(), func(err error) {
			fmt.Println("record", i, "is on the disk:", err == nil)
		}, queue.Record{Data: []byte("data")})
		if err != nil {
			panic(err)
		}
	}
	p.Close() // waits for them
	// Output:
	// record 0 is on the disk: true
	// record 1 is on the disk: true
	// record 2 is on the disk: true
}

func ExampleConsumer() {
	l, db := exampleLedger()
	defer db.Close()
	if _, err := l.Append(queue.Record{Data: []byte("a")}, queue.Record{Data: []byte("b")}); err != nil {
		panic(err)
	}
	table := queue.OpenTable(db, []byte("table/"))
	c, err := queue.NewConsumer(l, table, "worker", nil)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if err := l.DeleteTo(2); err != nil { // what no cleaner would do
		panic(err)
	}
	for range 2 {
		e, err := c.Next(context.Background())
		if lost := (*queue.LostError)(nil); errors.As(err, &lost) {
			fmt.Println("lost:", lost.Entries)
			continue
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d %s\n", e.Seq, e.Data)
		if err := c.Settle(e.Seq); err != nil {
			panic(err)
		}
	}
	// Output:
	// lost: 1
	// 2 b
}

func ExampleCleaner() {
	l, db := exampleLedger()
	defer db.Close()
	table := queue.OpenTable(db, []byte("table/"))
	c, err := queue.NewConsumer(l, table, "slow", nil)
	if err != nil {
		panic(err)
	}
	c.Close()
	for range 10 {
		if _, err := l.Append(queue.Record{Data: []byte("data")}); err != nil {
			panic(err)
		}
	}
	opts := queue.CleanerOptions{MaxEntries: 4}
	n, err := queue.NewCleaner(l, table, &opts).Clean()
	fmt.Println("deleted", n, err)
	opts.Force = true
	opts.Dropped = func(d queue.Drop) { fmt.Printf("%s loses %d to %d\n", d.Name, d.From, d.To-1) }
	n, err = queue.NewCleaner(l, table, &opts).Clean()
	fmt.Println("deleted", n, err)
	// Output:
	// deleted 0 <nil>
	// slow loses 1 to 6
	// deleted 6 <nil>
}

func ExampleMarks() {
	m := queue.NewMarks(1)
	m.MarkRange(1, 4)
	m.Mark(7)
	m.Mark(5)
	fmt.Println(m.Floor(), m.Marked(5), m.Marked(6), m.Unmarked(5), m.Ranges())
	m.Mark(4)
	m.Mark(6)
	fmt.Println(m.Floor(), m.Ranges())
	// Output:
	// 4 true false 6 2
	// 8 0
}
