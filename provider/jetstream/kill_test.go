package jetstream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

// The processes that this test kills are itself, run again with a role.
const roleVariable = "CATCHMENT_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "server":
		exit(serverRole(os.Args[1]))
	case "publisher":
		exit(publisherRole(os.Args[1], os.Args[2], os.Args[3]))
	case "worker":
		exit(workerRole(os.Args[1], os.Args[2]))
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serverRole runs a server in a directory and prints its address.
func serverRole(dir string) error {
	srv, err := embedded.Start(dir, &embedded.Options{SyncInterval: time.Minute, Host: "127.0.0.1", Port: -1})
	if err != nil {
		return err
	}
	fmt.Println(strings.TrimPrefix(srv.URL(), "nats://"))
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent ends
	return err
}

func role(url string) (*jetstream.Broker, error) {
	nc, err := jetstream.Connect(url, nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return nil, err
	}
	return jetstream.New(context.Background(), nc, jetstream.Config{})
}

// undoneAcks is how many acks a kill of the server may undo [ACK-1].
const undoneAcks = 1000

// killBatch is how many events are published at a time.
const killBatch = 50

// publisherRole publishes events number first to last, and writes down how far
// it has got, each time that Publish returned.
func publisherRole(url, file, last string) error {
	b, err := role(url)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(last)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	done, err := lines(file)
	if err != nil {
		return err
	}
	for i := killBatch * len(done); i < n; i += killBatch {
		events := make([]event.Event, killBatch)
		for j := range events {
			e, err := event.New("/kill", "work", i+j)
			if err != nil {
				return err
			}
			e.SetID(strconv.Itoa(i + j)) // the same after a kill
			events[j] = e
		}
		if err := b.Publish(context.Background(), events...); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(f, i+killBatch); err != nil {
			return err
		}
	}
	return nil
}

var killSubscription = messaging.Subscription{Name: "work", AckWait: time.Second, MaxInFlight: 64, MaxAttempts: 20}

// workerRole handles events and writes down which.
func workerRole(url, file string) error {
	b, err := role(url)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return messaging.React(context.Background(), b, killSubscription, func(_ context.Context, e event.Event) error {
		_, err := fmt.Fprintln(f, e.ID())
		return err
	}, &messaging.Options{Concurrency: 4})
}

// lines returns what a process has written to a file, or has not yet.
func lines(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' }), nil
}

// A process is a role that is killed and started again.
type process struct {
	t     *testing.T
	role  string
	args  []string
	cmd   *exec.Cmd
	stdin io.Closer
	kills int
}

func (p *process) start() (firstLine string) {
	p.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(exe, p.args...)
	p.cmd.Env = append(os.Environ(), roleVariable+"="+p.role)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	if p.role == "server" {
		if firstLine, err = bufio.NewReader(stdout).ReadString('\n'); err != nil {
			p.t.Fatalf("the server did not start: %v", err)
		}
	}
	return strings.TrimSpace(firstLine)
}

func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err == nil {
		p.kills++
	}
	_ = p.cmd.Wait()
}

// TestKill kills the server, the publisher and the workers at random moments.
// Every event whose Publish returned is handled; the kills make no dead letters;
// what is handled again was in flight or fetched ahead at a kill of a worker, or
// was acked in the last moments before one of the server, which writes acks down
// now and then.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	published, handled := filepath.Join(dir, "published"), filepath.Join(dir, "handled")
	l := newLink(t, "")
	server := &process{t: t, role: "server", args: []string{filepath.Join(dir, "server")}}
	l.mend(server.start())
	publisher := &process{t: t, role: "publisher", args: []string{l.url(), published, strconv.Itoa(killEvents)}}
	publisher.start()
	workers := make([]*process, 2)
	for i := range workers {
		workers[i] = &process{t: t, role: "worker", args: []string{l.url(), handled}}
		workers[i].start()
	}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			publisher.kill()
			for _, w := range workers {
				w.kill()
			}
			server.kill()
		})
	}
	t.Cleanup(stop)

	count := func(file string) int {
		done, err := lines(file)
		if err != nil {
			t.Fatal(err)
		}
		return len(done)
	}
	distinct := func() (distinct, repeated int) {
		done, err := lines(handled)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for _, id := range done {
			seen[id] = true
		}
		return len(seen), len(done) - len(seen)
	}
	for range killRounds {
		time.Sleep(time.Duration(100+rand.IntN(300)) * time.Millisecond)
		switch rand.IntN(4) {
		case 0:
			server.kill()
			l.cut()
			l.mend(server.start())
		case 1:
			publisher.kill()
			publisher.start()
		default:
			w := workers[rand.IntN(len(workers))]
			w.kill()
			w.start()
		}
	}
	within(t, killPatience, "all events published", func() bool { return killBatch*count(published) >= killEvents })
	within(t, killPatience, "all events handled", func() bool { n, _ := distinct(); return n >= killEvents })

	b, err := role(l.url())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	within(t, killPatience, "all events settled", func() bool {
		all, err := b.Subscriptions(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("subscriptions %v, %v", all, err)
		}
		if all[0].DeadLetters > 0 {
			t.Fatalf("%d events were dead-lettered by the kills", all[0].DeadLetters)
		}
		return all[0].Pending == 0 && all[0].InFlight == 0
	})
	info, err := b.Stream().Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != killEvents {
		t.Errorf("%d events are stored, want %d", info.State.Msgs, killEvents)
	}
	killed := workers[0].kills + workers[1].kills
	_, repeated := distinct()
	if most := killed*killSubscription.MaxInFlight + server.kills*undoneAcks; repeated > most {
		t.Errorf("%d events were handled again after %d kills of workers and %d of the server, want at most %d", repeated, killed, server.kills, most)
	}
	t.Logf("%d events, killed: server %d, publisher %d, workers %d; handled again: %d",
		killEvents, server.kills, publisher.kills, workers[0].kills+workers[1].kills, repeated)
	stop()
}
