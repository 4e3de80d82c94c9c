package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/outbox"
)

// TestWake has relays that never look by themselves: after 3 s the next look is
// two further on, and then four, and so on.
func TestWake(t *testing.T) {
	t.Parallel() // it mostly waits
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		opts := &outbox.Options{Poll: time.Hour}
		ob := newOutbox(t, db, opts)
		src := open(t, ob)
		wakes := func(id string, how func()) {
			t.Helper()
			time.Sleep(3 * time.Second) // by then it looks so seldom that it would not find anything in time
			began := time.Now()
			how()
			if err := receive(t, src, id).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 1500*time.Millisecond {
				t.Errorf("%s: it was found after %v", id, took)
			}
		}
		wakes("in this process", func() { publish(t, db, ob, newEvent(t, "in this process", "")) })

		// As from another process, and with a NOTIFY.
		other := newOutbox(t, d.open(t), opts)
		if d.postgres() {
			ctx, cancel := context.WithCancel(t.Context())
			listening, ended := make(chan struct{}), make(chan error)
			go func() { ended <- listen(ctx, db, ob, listening) }()
			defer func() { cancel(); <-ended }()
			<-listening
		}
		wakes("elsewhere", func() {
			publish(t, db, other, newEvent(t, "elsewhere", ""))
			if !d.postgres() {
				ob.Wake()
			}
		})
	})
}

// listen wakes an outbox when NOTIFY is said on its channel, until ctx ends.
func listen(ctx context.Context, db *sql.DB, ob *outbox.Outbox, listening chan<- struct{}) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driver any) error {
		pg := driver.(*stdlib.Conn).Conn()
		if _, err := pg.Exec(ctx, "LISTEN "+ob.Channel()); err != nil {
			return err
		}
		close(listening)
		for {
			ob.Wake() // what was committed before, too
			if _, err := pg.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	})
}

// TestNotifyIsRare counts the notifications of many transactions.
func TestNotifyIsRare(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	ob := newOutbox(t, db, nil)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var came atomic.Int64
	err = conn.Raw(func(driver any) error {
		pg := driver.(*stdlib.Conn).Conn()
		if _, err := pg.Exec(t.Context(), "LISTEN "+ob.Channel()); err != nil {
			return err
		}
		began := time.Now()
		for i := range 200 {
			publish(t, db, ob, newEvent(t, fmt.Sprint(i), ""))
		}
		took := time.Since(began)
		if _, err := db.Exec(`SELECT pg_notify($1, 'end')`, ob.Channel()); err != nil {
			return err
		}
		for {
			n, err := pg.WaitForNotification(t.Context())
			if err != nil {
				return err
			}
			if n.Payload == "end" {
				break
			}
			came.Add(1)
		}
		if n := came.Load(); n < 1 || n > int64(took/(10*time.Millisecond))+1 {
			t.Errorf("%d notifications in %v, want one per 10 ms at most", n, took)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDatabaseAway has the database answer nothing for a while: the calls end,
// what is held is lost when the lease may be, and all goes on afterwards.
func TestDatabaseAway(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	reports := make(chan error, 1000)
	ob := newOutbox(t, db, &outbox.Options{Lease: time.Second, Timeout: 200 * time.Millisecond, Report: func(_ context.Context, err error) {
		select {
		case reports <- err:
		default:
		}
	}})
	publish(t, db, ob, newEvent(t, "1", "a"))
	src := open(t, ob)
	one := receive(t, src, "1")

	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`LOCK TABLE outbox, outbox_lease IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the delivery lost", func() bool { _, err := one.Extend(t.Context()); return errors.Is(err, messaging.ErrLost) })
	select {
	case err := <-reports:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("reported %v, want a deadline", err)
		}
	case <-time.After(patience):
		t.Error("nothing is reported")
	}
	if err := one.Ack(t.Context()); !errors.Is(err, messaging.ErrLost) {
		t.Errorf("ack: %v, want ErrLost", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	again := receive(t, src, "1")
	if again.Info.Attempt != 2 {
		t.Errorf("attempt %d, want 2", again.Info.Attempt)
	}
	if err := again.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	empty(t, ob)
}
