package ledger_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

var kills = flag.Int("kills", 8, "how often TestKill kills a process")

// The process that TestKill kills is the test itself, run again with a role.
const roleVariable = "CATCHMENT_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "service" {
		if err := service(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var killSub = messaging.Subscription{Name: "work", MaxInFlight: 64, MaxAttempts: 8, AckWait: 10 * time.Second}

// poison is the event whose handler kills the process.
const poison = "poison"

// service publishes to a ledger, numbers without an end, and handles what it
// publishes. It writes down what Publish has returned for, and each delivery
// before it does anything with it. It ends with its standard input, and then it
// closes the broker when all is handled.
func service(dir string) error {
	b, err := ledger.Open(filepath.Join(dir, "ledger"), nil)
	if err != nil {
		return err
	}
	published, err := os.OpenFile(filepath.Join(dir, "published"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	received, err := os.OpenFile(filepath.Join(dir, "received"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	first := 0
	if all, err := lines(published.Name()); err != nil {
		return err
	} else if len(all) > 0 {
		if first, err = strconv.Atoi(all[len(all)-1]); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	})
	work.Go(func() {
		for n := first; ctx.Err() == nil; {
			events := make([]event.Event, 1+rand.IntN(20))
			for i := range events {
				e, err := event.New("/kill", "work", n)
				if err != nil {
					panic(err)
				}
				events[i] = e
				events[i].SetID(strconv.Itoa(n)) // the same after a kill
				n++
			}
			if err := b.Publish(context.Background(), events...); err != nil {
				panic(err)
			}
			fmt.Fprintln(published, n)
		}
	})
	src, err := b.Subscribe(context.Background(), killSub, nil) // also when it is to end already
	if err != nil {
		return err
	}
	for range 4 {
		work.Go(func() {
			for {
				idle, cancel := context.WithTimeout(context.Background(), time.Second)
				d, err := src.Receive(idle)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
					return // all is handled
				}
				if err != nil {
					panic(err)
				}
				fmt.Fprintln(received, d.Value.ID(), d.Info.Attempt)
				switch {
				case d.Value.ID() == poison && ctx.Err() == nil:
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				case rand.IntN(10) == 0 && d.Info.Attempt < 3:
					err = d.Retry(context.Background(), time.Duration(rand.IntN(20))*time.Millisecond)
				default:
					err = d.Ack(context.Background())
				}
				if err != nil {
					panic(err)
				}
			}
		})
	}
	work.Wait()
	return b.Close()
}

// lines returns what a process has written to a file, or has not yet.
func lines(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' }), nil
}

// TestKill kills a service at random moments. What it published is handled; no
// delivery is handed out twice under the same attempt, and none is left out but
// what the kill came between; and an event whose handler kills the process
// becomes a dead letter after MaxAttempts of that.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exe, err := os.Executable()
	want(t, err)
	start := func() (*exec.Cmd, io.Closer) {
		cmd := exec.Command(exe, dir)
		cmd.Env = append(os.Environ(), roleVariable+"=service")
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		want(t, err)
		want(t, cmd.Start())
		return cmd, stdin
	}
	for range *kills {
		cmd, _ := start()
		time.Sleep(time.Duration(20+rand.IntN(250)) * time.Millisecond)
		want(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}

	b, err := ledger.Open(filepath.Join(dir, "ledger"), nil)
	want(t, err)
	e, err := event.New("/kill", "work", nil)
	want(t, err)
	e.SetID(poison)
	want(t, b.Publish(t.Context(), e))
	want(t, b.Close())
	deaths := 0
	for poisoned := true; poisoned; {
		cmd, _ := start()
		for alive := true; alive; time.Sleep(5 * time.Millisecond) {
			alive = cmd.Process.Signal(syscall.Signal(0)) == nil && !ended(cmd)
			all, err := lines(filepath.Join(dir, "received"))
			want(t, err)
			n := 0
			for _, line := range all {
				if strings.HasPrefix(line, poison) {
					n++
				}
			}
			poisoned = n < killSub.MaxAttempts
			if deaths = n; !poisoned {
				break
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}

	cmd, stdin := start()
	for alive := true; ; time.Sleep(20 * time.Millisecond) { // on a slow machine no life before may have come so far
		all, err := lines(filepath.Join(dir, "published"))
		want(t, err)
		if alive = alive && !ended(cmd); len(all) > 0 || !alive {
			break
		}
	}
	want(t, stdin.Close())
	want(t, cmd.Wait())
	judgeKills(t, dir, *kills+deaths)
}

func ended(cmd *exec.Cmd) bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WNOHANG, nil)
	return err != nil || pid != 0
}

func judgeKills(t *testing.T, dir string, kills int) {
	published, err := lines(filepath.Join(dir, "published"))
	want(t, err)
	n, err := strconv.Atoi(published[len(published)-1])
	want(t, err)
	received, err := lines(filepath.Join(dir, "received"))
	want(t, err)
	attempts := make(map[string]int)
	gaps, again := 0, 0
	for _, line := range received {
		id, digits, _ := strings.Cut(line, " ")
		attempt, err := strconv.Atoi(digits)
		want(t, err)
		switch last := attempts[id]; {
		case attempt <= last:
			t.Errorf("event %s was delivered with attempt %d after attempt %d", id, attempt, last)
		case attempt > last+1:
			gaps += attempt - last - 1
		}
		if attempt > 1 {
			again++
		}
		attempts[id] = attempt
	}
	for i := range n {
		if attempts[strconv.Itoa(i)] == 0 {
			t.Errorf("event %d was published, and not handled", i)
		}
	}
	// Between Receive and the line that tells of it there is room for a kill,
	// for each of four members.
	if gaps > 4*kills {
		t.Errorf("%d attempts were left out, with %d kills", gaps, kills)
	}

	b, err := ledger.Open(filepath.Join(dir, "ledger"), nil)
	want(t, err)
	defer func() { want(t, b.Close()) }()
	all, err := b.Subscriptions(t.Context())
	want(t, err)
	if len(all) != 1 || all[0].Pending != 0 || all[0].InFlight != 0 || all[0].DeadLetters != 1 {
		t.Errorf("subscriptions %+v, want one with nothing pending and a dead letter", all)
	}
	src, err := b.Subscribe(t.Context(), messaging.Subscription{Name: "dead", DeadLettersOf: killSub.Name}, nil)
	want(t, err)
	d, err := src.Receive(t.Context())
	want(t, err)
	if letter, _ := messaging.DeadLetterFrom(d.Info); d.Value.ID() != poison || letter.Attempts != killSub.MaxAttempts {
		t.Errorf("dead letter %s %+v, want %s after %d attempts", d.Value.ID(), letter, poison, killSub.MaxAttempts)
	}
	t.Logf("%d events, %d kills, %d deliveries again, %d of them not seen", n, kills, again, gaps)
}
