// Shop keeps its orders in a database and tells a broker of each, so that both
// know the same orders, whenever it is killed.
//
//	go run ./examples/shop
//
// An order goes a long way: an HTTP handler stores it, and the event in the
// outbox, in one transaction; a relay publishes what stands in the outbox; and a
// handler adds it to the revenue in a second table, once, as the inbox sees to.
// The database is SQLite and the broker an embedded JetStream, both in -dir. The
// program places -n orders through its own HTTP server, and ends when the sums of
// the two tables agree. Kill it anywhere, also with kill -9, and start it again.
//
// With -n 0 it serves until Ctrl-C:
//
//	curl -d '{"id":"1","item":"tea","cents":250}' localhost:8080/orders
//
// Start reading in shop.go.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/catchment-events/catchment/event"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not drain
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	dir := flags.String("dir", filepath.Join(cache, "catchment-shop"), "`directory` of the database and the broker")
	orders := flags.Int("n", 500, "how many `orders` to place; 0: serve until Ctrl-C")
	address := flags.String("http", "127.0.0.1:0", "`address` to serve at")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *orders == 0 && *address == "127.0.0.1:0" {
		*address = "127.0.0.1:8080"
	}
	return serve(ctx, *dir, *address, *orders, out)
}

// serve runs the shop and its HTTP server, until the sums agree after so many
// orders, or until ctx ends.
func serve(ctx context.Context, dir, address string, orders int, out io.Writer) (err error) {
	s, err := open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if before, _, err := s.sums(ctx); err != nil {
		return err
	} else if before.orders > 0 {
		fmt.Fprintf(out, "%d orders are here from before\n", before.orders)
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(out, "serving http://%s, in %s\n", listener.Addr(), dir)

	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wait sync.WaitGroup
	wait.Go(func() { stop(s.work(working)) })
	wait.Go(func() { stop(server.Serve(listener)) })
	if orders > 0 {
		err = place(working, "http://"+listener.Addr().String(), orders)
		if err == nil {
			err = s.agree(working, out)
		}
	} else {
		<-working.Done()
	}
	if ctx.Err() != nil {
		err = nil
		fmt.Fprintln(out, "stopped; what is on its way goes on with the next start")
	} else if cause := context.Cause(working); cause != nil {
		err = cause
	}
	// First no more orders, then no more events.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(late))
	stop(nil)
	wait.Wait()
	return err
}

// place is the customers: four, who order until the shop has said that it has
// each order.
func place(ctx context.Context, url string, orders int) error {
	var wait sync.WaitGroup
	work := make(chan Order)
	for range 4 {
		wait.Go(func() {
			for o := range work {
				for order(ctx, url, o) != nil && ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	items := []string{"coffee", "tea", "water"}
	for range orders {
		e, err := event.New("/customer", "order", nil)
		if err != nil {
			return err
		}
		work <- Order{ID: e.ID(), Item: items[rand.N(len(items))], Cents: 100 + rand.N(900)}
	}
	close(work)
	wait.Wait()
	return context.Cause(ctx)
}

func order(ctx context.Context, url string, o Order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		return errors.New(response.Status)
	}
	return nil
}

// agree waits until the sums of the tables agree.
func (s *shop) agree(ctx context.Context, out io.Writer) error {
	for {
		orders, revenue, err := s.sums(ctx)
		if err != nil {
			return err
		}
		if orders == revenue {
			fmt.Fprintf(out, "the sums agree: %d orders of %d cents are stored, %d of %d are booked\n",
				orders.orders, orders.cents, revenue.orders, revenue.cents)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
