package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/inbox"
	"github.com/catchment-events/catchment/messaging/outbox"
	"github.com/catchment-events/catchment/provider/memory"
	"github.com/catchment-events/catchment/reactor"
)

// An order is stored and told of in one transaction, and counted in another
// table once.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE orders (id INTEGER); CREATE TABLE counted (id INTEGER)`); err != nil {
		log.Fatal(err)
	}

	ob, err := outbox.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	in, err := inbox.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, migrate := range []func(context.Context) error{ob.Migrate, in.Migrate} {
		if err := migrate(ctx); err != nil {
			log.Fatal(err)
		}
	}

	// The writer.
	order := func(id int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, id); err != nil {
			return err
		}
		placed, err := event.New("/shop", "order.placed", id)
		if err != nil {
			return err
		}
		if err := ob.In(tx).Publish(ctx, placed); err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := order(17); err != nil {
		log.Fatal(err)
	}

	// The relay, and a handler.
	broker := memory.New(nil)
	defer broker.Close()
	counted := in.Handler("count", func(ctx context.Context, tx *sql.Tx, e event.Event) error {
		id, err := event.Data[int](e)
		if err != nil {
			return reactor.Reject(err)
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO counted VALUES (?)`, id)
		return err
	})
	group := reactor.Group{Reactors: []*reactor.Reactor{
		ob.Relay(broker, nil),
		messaging.NewReactor(broker, messaging.Subscription{Name: "count"}, func(ctx context.Context, e event.Event) error {
			for range 3 { // an event that comes again changes nothing
				if err := counted(ctx, e); err != nil {
					return err
				}
			}
			cancel()
			return nil
		}, nil),
	}}
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}

	var orders, ids int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM counted)`).Scan(&orders, &ids); err != nil {
		log.Fatal(err)
	}
	stats, err := ob.Stats(context.Background())
	fmt.Println(orders, ids, stats.Pending, err)
	// Output: 1 1 0 <nil>
}
