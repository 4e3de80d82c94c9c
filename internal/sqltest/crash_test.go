package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/memory"
)

// TestCrashes runs the bank on the worst broker that is right, while relays die
// at random points, writers crash, and PostgreSQL ends connections. What dies in
// this process leaves nothing behind: neither its connections nor the broker
// hears of it again.
func TestCrashes(t *testing.T) {
	again(t, crashRuns, func(t *testing.T, d database) {
		var ends func(b *bank)
		if d.postgres() {
			ends = func(b *bank) {
				time.Sleep(rand.N(200 * time.Millisecond))
				_, _ = b.db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE application_name = current_schema() AND pid <> pg_backend_pid() AND random() < 0.3`)
			}
		}
		crashRun(t, d, crashFor, ends)
	})
}

// TestRestart restarts PostgreSQL meanwhile, with a command that the machine's
// owner gives: others who use the server are not asked.
func TestRestart(t *testing.T) {
	d := postgres(t)
	command := os.Getenv(variable + "_RESTART")
	if command == "" {
		t.Skip(variable + "_RESTART is not set to a command that restarts the server")
	}
	crashRun(t, d, 6*time.Second, func(*bank) {
		time.Sleep(time.Second)
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	})
}

// crashRun writes for some time, while ends ends connections.
func crashRun(t *testing.T, d database, length time.Duration, ends func(*bank)) {
	broker := memory.New(&memory.Options{Hostile: &memory.Hostile{Seed: rand.Uint64(), MaxDelay: time.Millisecond,
		FailPublish: 0.3, Slow: 0.05, Vanish: 0.005, UndoAck: 0.005}})
	defer broker.Close()
	work := newBank(t, d, bankOptions())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	writing, stop := context.WithTimeout(ctx, length)
	defer stop()

	var wait, trouble sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	for range 8 {
		wait.Go(func() { work.write(writing) })
	}
	wait.Go(func() {
		if err := work.mirror(ctx, broker); err != nil {
			t.Errorf("mirror: %v", err)
		}
	})
	for range 3 {
		wait.Go(func() {
			for writing.Err() == nil {
				mortal(t, d, broker, 20*time.Millisecond+rand.N(200*time.Millisecond))
			}
			relayOf(ctx, t, d, broker)
		})
	}
	if ends != nil {
		trouble.Go(func() {
			for writing.Err() == nil {
				ends(work)
			}
		})
	}
	<-writing.Done()
	trouble.Wait()
	b, err := openBank(d.open(t), bankOptions()) // with no connection that was ended
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.settle(t, broker)
	settled := time.Since(began)
	t.Logf("%d events, settled in %v, checked in %v", b.check(t, broker), settled, time.Since(began)-settled)
}

// relayOf runs a relay until ctx ends.
func relayOf(ctx context.Context, t *testing.T, d database, p messaging.Publisher) {
	db, err := d.connect()
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	b, err := openBank(db, bankOptions())
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		// It may not start while its connections are ended.
		if err := b.ob.Relay(p, soon).Run(ctx); err != nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// mortal runs a relay that dies after a while.
func mortal(t *testing.T, d database, p messaging.Publisher, life time.Duration) {
	db, err := d.connect()
	if err != nil {
		t.Error(err)
		return
	}
	b, err := openBank(db, bankOptions())
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &dies{Publisher: p, dead: ctx}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = b.ob.Relay(m, soon).Run(ctx) // it fails, at the latest when it dies
		}
	}()
	time.Sleep(life)
	var wait sync.WaitGroup
	wait.Go(func() { kill(db) })
	wait.Go(cancel)
	wait.Wait()
	<-ended
}

// kill ends what a process had of a database.
func kill(db *sql.DB) {
	db.SetMaxOpenConns(1)
	_ = db.Close()
}

// dies is a publisher that is not heard of again once it is dead. What was begun
// before may have been done.
type dies struct {
	messaging.Publisher
	dead context.Context
}

func (p *dies) Publish(ctx context.Context, events ...event.Event) error {
	if p.dead.Err() != nil {
		return errors.New("dead")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.dead, cancel)()
	if err := p.Publisher.Publish(ctx, events...); err != nil {
		return err
	}
	if p.dead.Err() != nil {
		return errors.New("dead") // the answer does not arrive
	}
	return nil
}
