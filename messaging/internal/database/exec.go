package database

import (
	"context"
	"database/sql"
)

// TxOptions returns how the packages' own transactions begin: as if the database
// had no other default of isolation, under which they would fail when another
// was faster. Each statement sees what was committed before it.
func (d Dialect) TxOptions() *sql.TxOptions {
	if d == Postgres {
		return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	return nil // SQLite has one writer at a time
}

// Exec runs a statement in a transaction of its own, and returns how many rows
// it affected.
func (d Dialect) Exec(ctx context.Context, db *sql.DB, query string, args ...any) (int, error) {
	tx, err := db.BeginTx(ctx, d.TxOptions())
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return 0, err
	}
	return int(n), nil
}
