// Package sqltest_test tests the packages that work on SQL databases, with the
// drivers that users of the module need not have: outbox and inbox. SQLite is
// always tested; PostgreSQL if CATCHMENT_TEST_POSTGRES is a URL of one, in which
// each test has a schema of its own.
package sqltest_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// A database is an empty one, and how others open it.
type database struct {
	driver, dsn string
}

func (d database) postgres() bool { return d.driver == "pgx" }

func (d database) connect() (*sql.DB, error) { return sql.Open(d.driver, d.dsn) }

// open opens the database until the test has ended.
func (d database) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := d.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// sqlite returns a new file, opened as the documentation says.
func sqlite(t testing.TB) database {
	return sqliteIn(t.TempDir())
}

func sqliteIn(dir string) database {
	return database{"sqlite", "file:" + filepath.Join(dir, "test.db") +
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"}
}

const variable = "CATCHMENT_TEST_POSTGRES"

// postgres returns a new schema.
func postgres(t testing.TB) database {
	t.Helper()
	address := os.Getenv(variable)
	if address == "" {
		t.Skip(variable + " is not set to the URL of a PostgreSQL database")
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("test_%d_%d", os.Getpid(), time.Now().UnixNano())
	db := database{"pgx", address}.open(t)
	if _, err := db.Exec("CREATE SCHEMA " + schema); err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP SCHEMA " + schema + " CASCADE"); err != nil {
			t.Error(err)
		}
	})
	q := u.Query()
	q.Set("search_path", schema)
	q.Set("application_name", schema) // to find its connections by
	u.RawQuery = q.Encode()
	return database{"pgx", u.String()}
}

// isolated returns the database with another default of isolation.
func (d database) isolated(level string) database {
	d.dsn += "&default_transaction_isolation=" + url.PathEscape(level)
	return d
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, d database)) {
	t.Run("SQLite", func(t *testing.T) { test(t, sqlite(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgres(t)) })
}

// again runs a test a number of times on each database, until it fails.
func again(t *testing.T, times int, test func(t *testing.T, d database)) {
	for run := range times {
		t.Run(fmt.Sprint(run+1), func(t *testing.T) { onEach(t, test) })
		if t.Failed() {
			return
		}
	}
}
