package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/inbox"
	"github.com/catchment-events/catchment/messaging/outbox"
	"github.com/catchment-events/catchment/provider/jetstream"
	"github.com/catchment-events/catchment/provider/jetstream/embedded"
	"github.com/catchment-events/catchment/reactor"
)

// An Order is what a customer sends, and what the event says.
type Order struct {
	ID    string `json:"id"`
	Item  string `json:"item"`
	Cents int    `json:"cents"`
}

const schema = `
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS revenue (item TEXT PRIMARY KEY, orders INTEGER NOT NULL, cents INTEGER NOT NULL);`

// A shop is a database with an outbox and an inbox, and a broker.
type shop struct {
	db     *sql.DB
	outbox *outbox.Outbox
	inbox  *inbox.Inbox
	broker *jetstream.Broker
	close  func() error
}

// place is the HTTP handler: the order and its event are stored, or neither is. A
// customer who got no answer sends the order again, and it is there once.
func (s *shop) place(ctx context.Context, o Order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing

	result, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, o.ID, o.Item, o.Cents)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return err
	}
	placed, err := event.New("/shop", "order.placed", o)
	if err != nil {
		return err
	}
	placed.SetSubject(o.Item) // the order of events is kept by item
	if err := s.outbox.In(tx).Publish(ctx, placed); err != nil {
		return err
	}
	return tx.Commit()
}

// book adds an order to the revenue, in the transaction in which the inbox notes
// the event.
func book(ctx context.Context, tx *sql.Tx, e event.Event) error {
	o, err := event.Data[Order](e)
	if err != nil {
		return reactor.Reject(err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO revenue VALUES (?, 1, ?)
		ON CONFLICT DO UPDATE SET orders = orders + 1, cents = cents + excluded.cents`, o.Item, o.Cents)
	return err
}

// work runs the relay and the handler until ctx ends, or one of them fails.
func (s *shop) work(ctx context.Context) error {
	revenue := messaging.Subscription{
		Name:    "revenue",
		Types:   []string{"order.placed"},
		AckWait: 2 * time.Second, // how soon an event comes again if the process that had it was killed
	}
	group := reactor.Group{Reactors: []*reactor.Reactor{
		s.outbox.Relay(s.broker, nil),
		messaging.NewReactor(s.broker, revenue, s.inbox.Handler(revenue.Name, book), nil),
	}}
	return group.Run(ctx)
}

// handler serves POST /orders.
func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o Order
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&o); err != nil || o.ID == "" || o.Item == "" {
			http.Error(w, "an order has an id and an item", http.StatusBadRequest)
			return
		}
		if err := s.place(r.Context(), o); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	return mux
}

// A sum is how many orders there are, and what they cost.
type sum struct{ orders, cents int }

// sums returns what was ordered and what was booked.
func (s *shop) sums(ctx context.Context) (orders, revenue sum, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT count(*), COALESCE(sum(cents), 0),
		(SELECT COALESCE(sum(orders), 0) FROM revenue), (SELECT COALESCE(sum(cents), 0) FROM revenue) FROM orders`).
		Scan(&orders.orders, &orders.cents, &revenue.orders, &revenue.cents)
	return orders, revenue, err
}

// open opens the database and the broker in a directory.
func open(ctx context.Context, dir string) (s *shop, err error) {
	s = &shop{}
	var closers []func() error
	s.close = func() (err error) {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	server, err := embedded.Start(filepath.Join(dir, "jetstream"), nil)
	if err != nil {
		return nil, err
	}
	closers = append(closers, server.Close)
	conn, err := server.Connect()
	if err != nil {
		return nil, err
	}
	closers = append(closers, func() error { conn.Close(); return nil })
	if s.broker, err = jetstream.New(ctx, conn, jetstream.Config{Stream: "shop"}); err != nil {
		return nil, err
	}
	closers = append(closers, s.broker.Close)

	s.db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	closers = append(closers, s.db.Close)
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return nil, err
	}
	// A relay that was killed is missed for two seconds.
	if s.outbox, err = outbox.New(s.db, &outbox.Options{Lease: 2 * time.Second}); err != nil {
		return nil, err
	}
	if s.inbox, err = inbox.New(s.db, nil); err != nil {
		return nil, err
	}
	return s, errors.Join(s.outbox.Migrate(ctx), s.inbox.Migrate(ctx))
}
