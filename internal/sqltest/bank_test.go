package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/messaging/inbox"
	"github.com/catchment-events/catchment/messaging/outbox"
	"github.com/catchment-events/catchment/reactor"
)

// A bank has accounts, tells of each change to one, and a mirror that follows
// what is told. Versions of an account count its changes, so that an event that
// is lost, invented or out of order shows.
type bank struct {
	db *sql.DB
	ob *outbox.Outbox
	in *inbox.Inbox
}

const accounts, initial = 12, 1000

// A change is what an event tells of an account.
type change struct {
	Account int `json:"account"`
	Version int `json:"version"`
	Delta   int `json:"delta"`
	Balance int `json:"balance"`
}

// soon is a backoff for tests in which much fails.
var soon = &messaging.Options{Backoff: reactor.Exponential(5*time.Millisecond, 50*time.Millisecond)}

// bankOptions has leases that end soon, for tests in which relays die.
func bankOptions() *outbox.Options {
	return &outbox.Options{Lease: 400 * time.Millisecond, Poll: 50 * time.Millisecond, Window: 64,
		Report: func(context.Context, error) {}} // trouble is what these tests make
}

func openBank(db *sql.DB, opts *outbox.Options) (*bank, error) {
	ob, err := outbox.New(db, opts)
	if err != nil {
		return nil, err
	}
	in, err := inbox.New(db, nil)
	return &bank{db, ob, in}, err
}

// newBank opens a bank in an empty database.
func newBank(t testing.TB, d database, opts *outbox.Options) *bank {
	t.Helper()
	b, err := openBank(d.open(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.ob.Migrate(t.Context()), b.in.Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"accounts", "mirror"} {
		if _, err := b.db.Exec(`CREATE TABLE ` + table + ` (id integer PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		for i := range accounts {
			if _, err := b.db.Exec(`INSERT INTO `+table+` VALUES ($1, $2, 0)`, i, initial); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

var errCrash = errors.New("crashed between the state and its commit")

// transfer moves money and tells of it, in one transaction. Some crash.
func (b *bank) transfer(ctx context.Context) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	i, j, sum := rand.N(accounts-1), rand.N(accounts-1), 1+rand.N(20)
	if j >= i {
		j++
	}
	if i > j { // in one order, or two transactions wait for each other
		i, j, sum = j, i, -sum
	}
	var events []event.Event
	for _, c := range []change{{Account: i, Delta: -sum}, {Account: j, Delta: sum}} {
		err := tx.QueryRowContext(ctx, `UPDATE accounts SET balance = balance + $1, version = version + 1 WHERE id = $2 RETURNING balance, version`,
			c.Delta, c.Account).Scan(&c.Balance, &c.Version)
		if err != nil {
			return err
		}
		e, err := event.New("/bank", "account.changed", c)
		if err != nil {
			return err
		}
		e.SetID(fmt.Sprintf("%d.%d", c.Account, c.Version)) // of a version that is rolled back, too
		e.SetSubject(fmt.Sprint("account ", c.Account))     // the key
		events = append(events, e)
	}
	if rand.N(20) == 0 {
		return errCrash
	}
	if err := b.ob.In(tx).Publish(ctx, events...); err != nil {
		return err
	}
	if rand.N(20) == 0 {
		return errCrash
	}
	return tx.Commit()
}

// write makes transfers until ctx ends. Some fail, in these tests.
func (b *bank) write(ctx context.Context) {
	for ctx.Err() == nil {
		_ = b.transfer(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(10 * time.Millisecond)):
		}
	}
}

// mirrors is the subscription of the mirror.
var mirrors = messaging.Subscription{Name: "mirror", AckWait: 500 * time.Millisecond}

// mirror follows the events until ctx ends. Changes commute, so it does not need
// their order.
func (b *bank) mirror(ctx context.Context, s messaging.Subscriber) error {
	return messaging.React(ctx, s, mirrors, b.in.Handler("mirror", func(ctx context.Context, tx *sql.Tx, e event.Event) error {
		c, err := event.Data[change](e)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE mirror SET balance = balance + $1, version = version + 1 WHERE id = $2`, c.Delta, c.Account)
		return err
	}), &messaging.Options{Concurrency: 4, Key: messaging.PartitionKey, Backoff: soon.Backoff, Observer: &messaging.Observer{Error: func(error) {}}})
}

// rows returns the balance and version of each account in a table.
func (b *bank) rows(t testing.TB, table string) (list [accounts]change) {
	t.Helper()
	rows, err := b.db.QueryContext(t.Context(), `SELECT id, balance, version FROM `+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var c change
		if err := rows.Scan(&c.Account, &c.Balance, &c.Version); err != nil {
			t.Fatal(err)
		}
		list[c.Account] = c
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// settle waits until every event has gone through the outbox, the broker and the
// mirror.
func (b *bank) settle(t testing.TB, broker messaging.Broker) {
	t.Helper()
	began := time.Now()
	for {
		s, err := b.ob.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want, have := 0, 0
		for _, c := range b.rows(t, "accounts") {
			want += c.Version
		}
		for _, c := range b.rows(t, "mirror") {
			have += c.Version
		}
		if s.Pending == 0 && have >= want {
			return
		}
		if time.Since(began) > 2*patience {
			admin, err := messaging.AdminOf(broker) // where does it hang?
			if err != nil {
				t.Fatal(err)
			}
			subscriptions, err := admin.Subscriptions(t.Context())
			t.Fatalf("after %v: outbox %+v, %d changes, %d of them mirrored, subscriptions %+v, %v", time.Since(began), s, want, have, subscriptions, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// check holds the accounts, the mirror, and what the log of the broker tells to
// each other.
func (b *bank) check(t testing.TB, broker messaging.Broker) (events int) {
	t.Helper()
	want := b.rows(t, "accounts")
	if have := b.rows(t, "mirror"); have != want {
		t.Errorf("mirror %+v\nwant %+v", have, want)
	}
	var log []change
	sum, last := 0, 0
	for _, c := range want {
		sum += c.Balance
		last += c.Version
	}
	if sum != accounts*initial {
		t.Errorf("the accounts have %d together, want %d", sum, accounts*initial)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	ended := make(map[int]bool) // accounts
	for i, c := range want {
		if c.Version == 0 {
			ended[i] = true
		}
	}
	sub := messaging.Subscription{Name: fmt.Sprintf("check-%d", time.Now().UnixNano()), MaxInFlight: 1, AckWait: 100 * time.Millisecond}
	for first := true; first || len(ended) < accounts && ctx.Err() == nil; first = false {
		err := messaging.React(ctx, broker, sub, func(ctx context.Context, e event.Event) error {
			c, err := event.Data[change](e)
			if err != nil {
				return err
			}
			log = append(log, c)
			if c.Version >= want[c.Account].Version {
				ended[c.Account] = true
			}
			return nil
		}, &messaging.Options{IdleTimeout: 500 * time.Millisecond, Observer: &messaging.Observer{Error: func(error) {}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range judge(log, want) {
		t.Error(err)
	}
	return last
}

// judge returns what is wrong with a log, of the accounts as they are at the end.
// An event that comes again is right: at least once.
func judge(log []change, accounts [accounts]change) (wrong []error) {
	var seen [len(accounts)]change
	for i := range seen {
		seen[i] = change{Account: i, Balance: initial}
	}
	for i, c := range log {
		if c.Version <= seen[c.Account].Version {
			continue // again
		}
		last := &seen[c.Account]
		if c.Version > accounts[c.Account].Version {
			wrong = append(wrong, fmt.Errorf("event %d: %+v was never committed: invented", i, c))
			continue
		}
		if c.Version != last.Version+1 {
			wrong = append(wrong, fmt.Errorf("event %d: %+v after version %d: lost, or out of order", i, c, last.Version))
		}
		if c.Balance != last.Balance+c.Delta && c.Version == last.Version+1 {
			wrong = append(wrong, fmt.Errorf("event %d: %+v after balance %d: of a transaction that was rolled back", i, c, last.Balance))
		}
		*last = change{Account: c.Account, Version: c.Version, Balance: c.Balance}
	}
	for i, c := range accounts {
		if seen[i] != c {
			wrong = append(wrong, fmt.Errorf("account %+v: the log ends with %+v", c, seen[i]))
		}
	}
	return wrong
}

// TestJudge has the judge of these tests say no.
func TestJudge(t *testing.T) {
	var right [accounts]change
	for i := range right {
		right[i] = change{Account: i, Balance: initial}
	}
	right[0] = change{Account: 0, Version: 3, Balance: initial + 6}
	one, two, three := change{0, 1, 1, initial + 1}, change{0, 2, 2, initial + 3}, change{0, 3, 3, initial + 6}
	for _, tt := range []struct {
		name string
		log  []change
		ok   bool
	}{
		{"right", []change{one, two, three}, true},
		{"again", []change{one, one, two, one, three, two}, true},
		{"lost in the middle", []change{one, three}, false},
		{"lost at the end", []change{one, two}, false},
		{"out of order", []change{one, three, two}, false},
		{"invented", []change{one, two, three, {0, 4, 1, initial + 7}}, false},
		{"rolled back", []change{one, {0, 2, 5, initial + 6}, three}, false},
	} {
		if wrong := judge(tt.log, right); (len(wrong) == 0) != tt.ok {
			t.Errorf("%s: %v", tt.name, wrong)
		}
	}
}
