package inbox

import (
	"context"
	"fmt"

	"github.com/catchment-events/catchment/messaging/internal/database"
)

// A Migration is one step to the tables as they are now. It has a Version, a Name,
// and its SQL, which may be several statements.
type Migration = database.Migration

// Migrations returns the steps to the tables as this version of the package wants
// them, for those who run migrations with a tool of their own: each once, in
// order, in a transaction. They note their versions, so Migrate knows of them.
func (in *Inbox) Migrations() []Migration { return append([]Migration(nil), in.migrations...) }

// Migrate creates the tables, or brings them up to date: it runs the migrations
// that have not been run. It may be called at every start, by several processes
// at once.
func (in *Inbox) Migrate(ctx context.Context) error {
	if err := database.Migrate(ctx, in.db, in.opts.Dialect, in.table, in.migrations); err != nil {
		return fmt.Errorf("inbox: migrate: %w", err)
	}
	return nil
}

const createPostgres = `CREATE TABLE {table} (
	subscription text NOT NULL,
	source text NOT NULL,
	id text NOT NULL,
	handled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (subscription, source, id)
);
CREATE INDEX {index_handled} ON {table} (handled_at);
`

const createSQLite = `CREATE TABLE {table} (
	subscription TEXT NOT NULL,
	source TEXT NOT NULL,
	id TEXT NOT NULL,
	handled_at INTEGER NOT NULL DEFAULT (` + database.NowSQLite + `),
	PRIMARY KEY (subscription, source, id)
) WITHOUT ROWID;
CREATE INDEX {index_handled} ON {table} (handled_at);
`

// statements sets what an inbox says to its database.
func (in *Inbox) statements() {
	create, purge := createPostgres, `DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table}
	WHERE handled_at < clock_timestamp() - $1::bigint * interval '1 millisecond' ORDER BY handled_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
	if in.opts.Dialect == SQLite {
		create, purge = createSQLite, `DELETE FROM {table} WHERE (subscription, source, id) IN (SELECT subscription, source, id FROM {table}
	WHERE handled_at < `+database.NowSQLite+` - $1 ORDER BY handled_at LIMIT $2)`
	}
	say := func(query string) string { return in.table.Expand(in.opts.Dialect.Numbered(query)) }
	in.insert = say(`INSERT INTO {table} (subscription, source, id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`)
	in.purge = say(purge)
	in.migrations = database.Migrations(in.table, database.Migration{Version: 1, Name: "create", SQL: create})
}
