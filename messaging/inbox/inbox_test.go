package inbox_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/catchment-events/catchment/messaging/inbox"
)

// nameless is a driver of no known database. What needs a real one is tested in
// the module internal/sqltest.
type nameless struct{}

func (nameless) Open(string) (driver.Conn, error) { return nil, errors.New("there is none") }

func init() { sql.Register("nameless", nameless{}) }

func TestDialect(t *testing.T) {
	db, err := sql.Open("nameless", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := inbox.New(db, nil); err == nil || !strings.Contains(err.Error(), "set Dialect") {
		t.Errorf("without a dialect: %v", err)
	}
	in, err := inbox.New(db, &inbox.Options{Dialect: inbox.Postgres})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("migrate: %v, want the driver's error", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a nil handler is no panic")
		}
	}()
	in.Handler("stock", nil)
}
