package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

// The processes that TestKill kills are this test, run again with a role.
const roleVariable = "CATCHMENT_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role, database{os.Args[1], os.Args[2]}, os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
}

// play does what a role does until the parent ends, or kills it.
func play(role string, d database, url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	db, err := d.connect()
	if err != nil {
		return err
	}
	defer db.Close()
	b, err := openBank(db, bankOptions())
	if err != nil {
		return err
	}
	if role == "writer" {
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() { b.write(ctx) })
		}
		wait.Wait()
		return nil
	}
	broker, err := bankBroker(url)
	if err != nil {
		return err
	}
	defer broker.Close()
	if role == "mirror" {
		return b.mirror(ctx, broker)
	}
	return b.ob.Relay(broker, soon).Run(ctx)
}

func bankBroker(url string) (*jetstream.Broker, error) {
	nc, err := jetstream.Connect(url, nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return jetstream.New(context.Background(), nc, jetstream.Config{})
}

// A cast is processes of one role, each of which is started again when it was
// killed.
type cast struct {
	role string
	cmd  *exec.Cmd
	stop io.Closer
}

func (c *cast) start(t *testing.T, d database, url string) {
	t.Helper()
	c.cmd = exec.Command(os.Args[0], d.driver, d.dsn, url)
	c.cmd.Env = append(os.Environ(), roleVariable+"="+c.role)
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stop = in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// TestKill runs the bank in processes, on JetStream, and kills them at random
// points: two with four writers each, three relays, and two mirrors.
func TestKill(t *testing.T) {
	again(t, killRuns, killRun)
}

func killRun(t *testing.T, d database) {
	srv, err := embedded.Start(t.TempDir(), &embedded.Options{SyncInterval: time.Minute, Host: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	broker, err := bankBroker(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	b := newBank(t, d, bankOptions())

	var all []*cast
	for _, role := range []string{"writer", "relay", "mirror", "relay", "writer", "mirror", "relay"} {
		c := &cast{role: role}
		c.start(t, d, srv.URL())
		defer func() { // whatever happens
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}()
		all = append(all, c)
	}
	began := time.Now()
	moves(t, b, 100) // all have started, more or less
	for range kills {
		time.Sleep(rand.N(150 * time.Millisecond))
		c := all[rand.N(len(all))]
		if rand.N(2) == 0 {
			if c = worksNow(t, b.db, all); c == nil {
				continue
			}
		}
		_ = c.cmd.Process.Kill() // SIGKILL
		_ = c.cmd.Wait()
		c.start(t, d, srv.URL())
	}
	moves(t, b, 100)
	for _, c := range all {
		if c.role == "writer" { // the others have work to do
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	}
	wrote := time.Since(began)
	b.settle(t, broker)
	n := b.check(t, broker)
	t.Logf("%d events, written in %v, all over after %v", n, wrote, time.Since(began))
	for _, c := range all {
		if c.role == "writer" {
			continue
		}
		_ = c.stop.Close()
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", c.role, err)
		}
	}
}

// worksNow returns the relay that has the lease.
func worksNow(t *testing.T, db *sql.DB, all []*cast) *cast {
	var holder string
	if err := db.QueryRow(`SELECT holder FROM outbox_lease`).Scan(&holder); err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	for _, c := range all {
		if holder == fmt.Sprintf("%s %d", host, c.cmd.Process.Pid) {
			return c
		}
	}
	return nil
}

// moves waits until a number of events more has been mirrored.
func moves(t *testing.T, b *bank, n int) {
	t.Helper()
	done := func() int { return count(t, b.db, `SELECT sum(version) FROM mirror`) }
	began, first := time.Now(), done()
	for done() < first+n {
		if time.Since(began) > patience {
			t.Fatalf("%d events mirrored in %v", done()-first, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
