package database

import (
	"context"
	"database/sql"
	"fmt"
)

// A Migration is one step to the tables as they are now. Its SQL is run once, in
// a transaction, after those before it. It notes its version itself.
type Migration struct {
	Version int
	Name    string
	SQL     string
}

// Migrations expands the steps of a table, and makes each note its version in
// {table_schema}.
func Migrations(t Table, steps ...Migration) []Migration {
	list := make([]Migration, len(steps))
	for i, m := range steps {
		note := fmt.Sprintf("INSERT INTO {table_schema} (version) VALUES (%d);\n", m.Version)
		if i == 0 {
			note = "CREATE TABLE IF NOT EXISTS {table_schema} (version integer PRIMARY KEY);\n" + note
		}
		m.SQL = t.Expand(m.SQL + note)
		list[i] = m
	}
	return list
}

// Migrate runs the migrations that have not been run. Several may do it at once.
func Migrate(ctx context.Context, db *sql.DB, d Dialect, t Table, list []Migration) error {
	tx, err := db.BeginTx(ctx, d.TxOptions())
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	// The first statement keeps others out: concurrent CREATE TABLE IF NOT
	// EXISTS is an error in PostgreSQL, and SQLite must not begin with a read.
	if d == Postgres {
		_, err = tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "catchment migrate "+t.String())
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, t.Expand(`CREATE TABLE IF NOT EXISTS {table_schema} (version integer PRIMARY KEY)`))
	}
	if err != nil {
		return fmt.Errorf("table %v: %w", t, err)
	}
	have, err := version(ctx, tx, t)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.Version <= have {
			continue
		}
		if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
			return fmt.Errorf("table %v: migration %d, %s: %w", t, m.Version, m.Name, err)
		}
	}
	return tx.Commit()
}

// Migrated returns an error that says what to do if the migrations of a table
// have not been run.
func Migrated(ctx context.Context, db *sql.DB, t Table, list []Migration) error {
	have, err := version(ctx, db, t)
	if err != nil {
		return fmt.Errorf("%w (was Migrate called?)", err)
	}
	if want := list[len(list)-1].Version; have < want {
		return fmt.Errorf("table %v is at version %d of %d: call Migrate", t, have, want)
	}
	return nil
}

func version(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, t Table) (have int, err error) {
	if err := db.QueryRowContext(ctx, t.Expand(`SELECT COALESCE(max(version), 0) FROM {table_schema}`)).Scan(&have); err != nil {
		return 0, fmt.Errorf("table %v: read its version: %w", t, err)
	}
	return have, nil
}
