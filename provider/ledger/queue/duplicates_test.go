package queue_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/provider/ledger/queue"
)

func TestDuplicates(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	p := queue.NewProducer(l, &queue.ProducerOptions{Duplicates: time.Hour})
	anonymous := queue.Record{Data: []byte("anonymous")}
	steps := []struct {
		name string
		rs   []queue.Record
		want uint64 // length of the ledger
	}{
		{"new", []queue.Record{record(1)}, 1},
		{"again", []queue.Record{record(1)}, 1},
		{"twice in one call", []queue.Record{record(2), record(2)}, 2},
		{"among others", []queue.Record{record(3), record(1), record(4), record(2)}, 4},
		{"without an ID", []queue.Record{anonymous, anonymous}, 6},
		{"without an ID again", []queue.Record{anonymous}, 7},
		{"none", nil, 7},
	}
	for _, st := range steps {
		if err := p.Append(t.Context(), st.rs...); err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
		if l.Len() != st.want {
			t.Fatalf("%s: %d entries, want %d", st.name, l.Len(), st.want)
		}
	}
	if !p.Seen(record(3).ID) || p.Seen(record(5).ID) {
		t.Error("Seen is wrong")
	}
	p.Close()
	if err := l.DeleteTo(3); err != nil {
		t.Fatal(err)
	}
	s.reopen()
	l = s.ledger(nil)
	p = producer(t, l, &queue.ProducerOptions{Duplicates: time.Hour})
	if err := p.Append(t.Context(), records(1, 6)...); err != nil {
		t.Fatal(err)
	}
	if l.Next() != 9 {
		t.Errorf("after a restart the next entry is %d, want 9: the window was lost", l.Next())
	}
}

// The window is a real one: what is older is stored again, and what is younger
// is not, also when the duplicate came in between. Only that time has passed is
// waited for; what counts are the times at which entries are stored.
func TestTheWindowEndsAndDuplicatesDoNotExtendIt(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	const window = 50 * time.Millisecond
	p := queue.NewProducer(l, &queue.ProducerOptions{Duplicates: window})
	restart := false
	for l.Len() < 20 {
		if err := p.Append(t.Context(), record(1)); err != nil {
			t.Fatal(err)
		}
		if l.Len() == 10 && !restart {
			restart = true
			p.Close()
			s.reopen()
			l = s.ledger(nil)
			p = queue.NewProducer(l, &queue.ProducerOptions{Duplicates: window})
		}
		runtime.Gosched()
	}
	p.Close()
	entries, err := l.Read(1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries[1:] {
		if d := e.Stored.Sub(entries[i].Stored); d < window {
			t.Errorf("entry %d is stored %v after entry %d, within the window", e.Seq, d, i+1)
		} else if d > window+time.Second {
			t.Errorf("entry %d is stored %v after entry %d", e.Seq, d, i+1)
		}
	}
}

func TestForgottenIDsLeaveTheDatabase(t *testing.T) {
	s := newStore(t)
	l := s.ledger(nil)
	p := producer(t, l, &queue.ProducerOptions{Duplicates: time.Nanosecond})
	for i := range 2000 {
		if err := p.Append(t.Context(), record(i)); err != nil {
			t.Fatal(err)
		}
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for it.SeekGE([]byte("li")); it.Valid() && bytes.HasPrefix(it.Key(), []byte("li")); it.Next() {
		n++
	}
	if n > 200 {
		t.Errorf("%d of 2000 rows of IDs are kept, and all are older than the window", n)
	}
}

// A duplicate of what is still on its way waits for it.
func TestDuplicateOfAPendingRecordWaits(t *testing.T) {
	fs, s := newSlowStore(t)
	p := producer(t, s.ledger(nil), &queue.ProducerOptions{Duplicates: time.Hour})
	results := make(chan string, 3)
	fs.block()
	go func() { results <- fmt.Sprint("first ", p.Append(t.Context(), record(1))) }()
	<-fs.blocked
	ctx, cancel := context.WithCancel(t.Context())
	go func() { results <- fmt.Sprint("impatient ", p.Append(ctx, record(1))) }()
	for p.Seen(record(1).ID) {
		t.Error("Seen is true before the record is on the disk")
	}
	cancel()
	if got := <-results; got != "impatient context canceled" {
		t.Errorf("%s, want that the duplicate waits", got)
	}
	go func() { results <- fmt.Sprint("second ", p.Append(t.Context(), record(1))) }()
	fs.release()
	got := []string{<-results, <-results}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"first <nil>", "second <nil>"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
