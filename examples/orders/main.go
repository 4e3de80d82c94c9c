// Orders is a shop in one command: it publishes orders, and three services
// handle them. Billing has two members that share the work, shipping selects
// what was paid, and audit takes everything in strict order.
//
//	go run ./examples/orders            # on JetStream, in this process
//	go run ./examples/orders -memory    # the same on the memory provider
//	go run ./examples/orders -ledger d  # and in the directory d, without a server
//
// Some handlers fail and are retried, and one order is rejected. At the end a
// table says what became of every event; the exit code is 0 only if each was
// acked or rejected by every subscription that selects it. Ctrl-C drains, and
// the next run goes on where this one stopped. -events publishes events from a
// file or from standard input instead of orders of its own, and -redrive
// handles the rejected orders again, with a handler that can.
//
// Start reading in services.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not drain
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout))
}

// run is the program. It returns the exit code: 2 for a command line that makes
// no sense, 1 if something is not accounted for, else 0.
func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) int {
	c, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	s := shop{
		config: c,
		out:    log.New(stdout, "", 0),
		log:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		tally:  newTally(),
		began:  time.Now(),
	}
	if err := s.run(ctx, stdin); err != nil {
		s.out.Println("failed:", err)
		return 1
	}
	return 0
}

// config is the command line.
type config struct {
	events  string
	orders  int
	memory  bool
	ledger  string
	nats    string
	dir     string
	redrive bool
}

func parse(args []string, stdout io.Writer) (config, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	var c config
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(stdout)
	flags.StringVar(&c.events, "events", "", "publish the CloudEvents in this `file`, JSON one after another; - is standard input")
	flags.IntVar(&c.orders, "n", 2000, "how many `orders` to make")
	flags.BoolVar(&c.memory, "memory", false, "use the memory provider")
	flags.StringVar(&c.ledger, "ledger", "", "use the ledger in this `directory`, without a server")
	flags.StringVar(&c.nats, "nats", "", "use the NATS server at this `URL`, not one in this process")
	flags.StringVar(&c.dir, "dir", filepath.Join(cache, "catchment-orders"), "`directory` of the server in this process")
	flags.BoolVar(&c.redrive, "redrive", false, "handle the dead letters again, and make no orders")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, clash := range [][2]string{
		{"memory", "ledger"}, {"memory", "nats"}, {"memory", "dir"}, {"ledger", "nats"}, {"ledger", "dir"}, {"nats", "dir"}, {"events", "n"}, {"redrive", "n"}, {"redrive", "events"},
		{"memory", "redrive"}, // it begins empty: nothing has died there
	} {
		if given[clash[0]] && given[clash[1]] {
			err = fmt.Errorf("-%s and -%s do not go together", clash[0], clash[1])
		}
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case c.orders < 0:
		err = fmt.Errorf("-n %d is negative", c.orders)
	case err == nil:
		return c, nil
	}
	fmt.Fprintln(stdout, err)
	flags.Usage()
	return c, err
}

// A shop is one run of the program.
type shop struct {
	config
	out   *log.Logger
	log   *slog.Logger
	tally *tally
	began time.Time
}

// A feed publishes what a run is about, and returns when that is done or ctx
// has ended.
type feed func(ctx context.Context, p messaging.Publisher) error

// patience bounds what is waited for after Ctrl-C.
const patience = 10 * time.Second

func (s *shop) run(ctx context.Context, stdin io.Reader) (err error) {
	input, err := openInput(s.events, stdin, s.out)
	if err != nil {
		return err
	}
	broker, closeBroker, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBroker()) }()

	// What is published through this publisher is accounted for.
	publisher := s.tally.publisher(broker)
	audit := newAudit()
	services := []service{billing(publisher), shipping(), audit.service()}
	subscribed := make(chan struct{})
	group := reactor.Group{DrainTimeout: patience, Started: func() { close(subscribed) }}
	for _, svc := range services {
		svc.opts.Observer = reactor.Observers(s.tally.observer(svc.sub), messaging.Log(s.log))
		for range svc.members {
			group.Reactors = append(group.Reactors, messaging.NewReactor(broker, svc.sub, svc.handle, &svc.opts))
		}
	}

	// All work until everything is done, until Ctrl-C, or until one fails.
	working, stop := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop(nil)
	wait.Go(func() { stop(group.Run(working)) })

	feed := makeOrders(s.orders)
	switch {
	case s.redrive:
		feed = redrive(broker, services, s.tally)
	case input != nil:
		feed = input.publish
	}
	fed := make(chan struct{})
	wait.Go(func() {
		select {
		case <-subscribed: // all of them before anything is published
		case <-working.Done():
			return
		}
		if err := feed(working, publisher); err != nil {
			stop(err)
			return
		}
		close(fed)
	})

	err = s.watch(working, broker, services, fed)
	if ctx.Err() != nil && err == context.Cause(ctx) {
		s.out.Printf("\n%v: what was begun is finished, the rest is left for the next run", err)
		err = nil
	}
	stop(nil)
	wait.Wait()

	// Nothing happens any more. That ctx may have ended is no reason to say
	// nothing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	s.out.Printf("\n%s%s", s.tally.table(), audit)
	err = errors.Join(err, s.remains(ctx, broker, services))
	switch {
	case err != nil:
	case input != nil && input.refused > 0:
		err = fmt.Errorf("%d refused in %s", input.refused, input.name)
	case audit.disorder > 0:
		err = fmt.Errorf("audit: %d events were out of order", audit.disorder)
	case !done(fed):
		err = errors.New("not everything was published")
	case len(s.tally.unsettled()) > 0:
		err = errors.New("not everything is accounted for")
	}
	return err
}
