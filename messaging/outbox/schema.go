package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/catchment-events/catchment/messaging/internal/database"
)

// A Migration is one step to the tables as they are now. It has a Version, a Name,
// and its SQL, which may be several statements.
type Migration = database.Migration

// Migrations returns the steps to the tables as this version of the package wants
// them, for those who run migrations with a tool of their own: each once, in
// order, in a transaction. They note their versions, so Migrate knows of them.
func (o *Outbox) Migrations() []Migration { return append([]Migration(nil), o.migrations...) }

// Migrate creates the tables, or brings them up to date: it runs the migrations
// that have not been run. It may be called at every start, by several processes
// at once.
func (o *Outbox) Migrate(ctx context.Context) error {
	if err := database.Migrate(ctx, o.db, o.opts.Dialect, o.table, o.migrations); err != nil {
		return fmt.Errorf("outbox: migrate: %w", err)
	}
	return nil
}

func migrations(d Dialect) []Migration {
	if d == Postgres {
		return []Migration{{Version: 1, Name: "create", SQL: createPostgres}}
	}
	return []Migration{{Version: 1, Name: "create", SQL: createSQLite}}
}

// Rows come and go: they are vacuumed by number and not by share of the table.
const createPostgres = `CREATE TABLE {table} (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	source text NOT NULL,
	id text NOT NULL,
	partitionkey text NOT NULL,
	event text NOT NULL,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	attempts integer NOT NULL DEFAULT 0,
	next_at timestamptz,
	last_error text,
	parked_at timestamptz,
	UNIQUE (source, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
CREATE INDEX {index_parked} ON {table} (partitionkey, seq) WHERE parked_at IS NOT NULL;
CREATE TABLE {table_lease} (
	nr integer PRIMARY KEY CHECK (nr = 1),
	term bigint NOT NULL,
	holder text NOT NULL,
	expires_at timestamptz NOT NULL,
	claimed text NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {table_lease} VALUES (1, 0, '', clock_timestamp(), '');
`

// AUTOINCREMENT: otherwise the number of the last row is used again when that
// row was deleted, and a relay would take the new row for the old one.
const createSQLite = `CREATE TABLE {table} (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	source TEXT NOT NULL,
	id TEXT NOT NULL,
	partitionkey TEXT NOT NULL,
	event TEXT NOT NULL,
	created_at INTEGER NOT NULL DEFAULT (` + database.NowSQLite + `),
	attempts INTEGER NOT NULL DEFAULT 0,
	next_at INTEGER,
	last_error TEXT,
	parked_at INTEGER,
	UNIQUE (source, id)
);
CREATE INDEX {index_parked} ON {table} (partitionkey, seq) WHERE parked_at IS NOT NULL;
CREATE TABLE {table_lease} (
	nr INTEGER PRIMARY KEY CHECK (nr = 1),
	term INTEGER NOT NULL,
	holder TEXT NOT NULL,
	expires_at INTEGER NOT NULL,
	claimed TEXT NOT NULL
);
INSERT INTO {table_lease} VALUES (1, 0, '', ` + database.NowSQLite + `, '');
`

// statements are what an outbox says to its database.
type statements struct {
	insert, conflict, notify string

	free, acquire, charge, renew, claim, release string // of the lease

	look, fetch, mark, ack, fail string

	stats, parked, retry, discard string
}

// statementsFor writes the statements. {now} is the database's time, {later $1}
// that many milliseconds later, {in $1} one of a list of numbers, {micros x} a
// time in microseconds since 1970.
func statementsFor(d Dialect, t database.Table, hold bool) statements {
	held := ""
	if hold {
		held = ` AND NOT EXISTS (SELECT 1 FROM {table} AS parked WHERE parked.partitionkey = o.partitionkey AND parked.parked_at IS NOT NULL AND parked.seq < o.seq)`
	}
	next := ` FROM {table} AS o WHERE o.seq > $1 AND o.parked_at IS NULL AND {not in seq $2} AND {not in partitionkey $3}` + held
	s := statements{
		insert:   `INSERT INTO {table} (source, id, partitionkey, event) VALUES `,
		conflict: ` ON CONFLICT (source, id) DO NOTHING`,

		free:    `SELECT expires_at <= {now} FROM {table_lease}`,
		acquire: `UPDATE {table_lease} SET term = term + 1, holder = $1, expires_at = {later $2} WHERE expires_at <= {now} RETURNING term, claimed`,
		charge:  `UPDATE {table} SET attempts = attempts + 1, last_error = $2 WHERE {in seq $1}`,
		renew:   `UPDATE {table_lease} SET expires_at = {later $2} WHERE term = $1`,
		claim:   `UPDATE {table_lease} SET claimed = $2 WHERE term = $1`,
		release: `UPDATE {table_lease} SET expires_at = {now}, claimed = '' WHERE term = $1`,

		look: `SELECT EXISTS (SELECT 1` + next + `)`,
		ack:  `DELETE FROM {table} WHERE {in seq $1}`,

		parked:  `SELECT seq, event, attempts, COALESCE(last_error, ''), {micros created_at}, {micros parked_at} FROM {table} WHERE parked_at IS NOT NULL AND seq > $1 ORDER BY seq LIMIT $2`,
		retry:   `UPDATE {table} SET parked_at = NULL, attempts = 0, next_at = NULL WHERE parked_at IS NOT NULL AND {in seq $1}`,
		discard: `DELETE FROM {table} WHERE parked_at IS NOT NULL AND {in seq $1}`,
	}
	var rules []string
	switch d {
	case Postgres:
		// The condition is looked at before there are rows, so the transaction has
		// its number before these have theirs, as position has it. Otherwise the
		// row comes first, and in between may wait for a twin's transaction.
		s.insert = `INSERT INTO {table} (source, id, partitionkey, event) SELECT * FROM (VALUES `
		s.conflict = `) AS event_rows WHERE pg_current_xact_id() IS NOT NULL` + s.conflict
		s.notify = ` RETURNING pg_notify('` + channel(t) + `', '')`
		s.fetch = `SELECT seq, partitionkey, event, attempts, {micros created_at},
	COALESCE(GREATEST(0, ceil(extract(epoch FROM next_at - clock_timestamp()) * 1000)), 0)::bigint,
	(SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint), (SELECT pg_current_xact_id()::text::bigint)
FROM (SELECT *, sum(octet_length(event)) OVER (ORDER BY seq) - octet_length(event) AS bytes_before
	FROM (SELECT *` + next + ` ORDER BY seq LIMIT $4) AS next_rows) AS measured
WHERE bytes_before < $5 ORDER BY seq`
		s.mark = `SELECT COALESCE(encode(sha256(string_agg(seq::text, ' ' ORDER BY seq)::bytea), 'hex'), '') FROM {table} WHERE parked_at IS NOT NULL`
		s.fail = `UPDATE {table} AS o SET attempts = f.attempts, last_error = f.error,
	next_at = {now} + f.after * interval '1 millisecond', parked_at = CASE WHEN f.park THEN {now} END
FROM json_to_recordset($1::json) AS f(seq bigint, attempts integer, error text, after bigint, park boolean)
WHERE o.seq = f.seq AND {in o.seq $2}`
		s.stats = `SELECT count(*) FILTER (WHERE parked_at IS NULL), count(*) FILTER (WHERE parked_at IS NOT NULL),
	COALESCE(GREATEST(0, extract(epoch FROM {now} - min(created_at) FILTER (WHERE parked_at IS NULL)) * 1000000), 0)::bigint FROM {table}`
		rules = []string{
			`{now}`, `clock_timestamp()`,
			`{later $2}`, `clock_timestamp() + $2::bigint * interval '1 millisecond'`,
			`{in seq $1}`, `seq = ANY($1::bigint[])`,
			`{in o.seq $2}`, `o.seq = ANY($2::bigint[])`,
			`{not in seq $2}`, `o.seq NOT IN (SELECT unnest($2::bigint[]))`,
			`{not in partitionkey $3}`, `o.partitionkey NOT IN (SELECT unnest($3::text[]))`,
			`{micros created_at}`, `(extract(epoch FROM created_at) * 1000000)::bigint`,
			`{micros parked_at}`, `(extract(epoch FROM parked_at) * 1000000)::bigint`,
		}
	case SQLite:
		// Rows are read one at a time, so bytes are counted while reading. Others
		// that write have ended: there is one at a time.
		s.fetch = `SELECT o.seq, o.partitionkey, o.event, o.attempts, {micros created_at}, max(0, COALESCE(o.next_at - {now}, 0)), 1, 1` + next + ` AND $5 > 0 ORDER BY o.seq LIMIT $4`
		s.mark = `SELECT COALESCE(group_concat(seq, ' '), '') FROM (SELECT seq FROM {table} WHERE parked_at IS NOT NULL ORDER BY seq)`
		s.fail = `UPDATE {table} SET attempts = f.attempts, last_error = f.error,
	next_at = {now} + f.after, parked_at = CASE WHEN f.park THEN {now} END
FROM (SELECT json_extract(value, '$.seq') AS seq, json_extract(value, '$.attempts') AS attempts, json_extract(value, '$.error') AS error,
	json_extract(value, '$.after') AS after, json_extract(value, '$.park') AS park FROM json_each($1)) AS f
WHERE {table}.seq = f.seq AND $2 <> ''`
		s.stats = `SELECT count(*) FILTER (WHERE parked_at IS NULL), count(*) FILTER (WHERE parked_at IS NOT NULL),
	max(0, COALESCE({now} - min(created_at) FILTER (WHERE parked_at IS NULL), 0)) * 1000 FROM {table}`
		rules = []string{
			`{now}`, database.NowSQLite,
			`{later $2}`, database.NowSQLite + ` + $2`,
			`{in seq $1}`, `seq IN (SELECT value FROM json_each($1))`,
			`{not in seq $2}`, `o.seq NOT IN (SELECT value FROM json_each($2))`,
			`{not in partitionkey $3}`, `o.partitionkey NOT IN (SELECT value FROM json_each($3))`,
			`{micros created_at}`, `created_at * 1000`,
			`{micros parked_at}`, `parked_at * 1000`,
		}
	}
	dialect := strings.NewReplacer(rules...)
	for _, q := range []*string{
		&s.insert, &s.free, &s.acquire, &s.charge, &s.renew, &s.claim, &s.release, &s.look, &s.fetch, &s.mark, &s.ack, &s.fail,
		&s.stats, &s.parked, &s.retry, &s.discard,
	} {
		*q = d.Numbered(t.Expand(dialect.Replace(*q)))
	}
	return s
}

// channel is the name of a table as that of a channel, which PostgreSQL bounds.
func channel(t database.Table) string {
	name := strings.ReplaceAll(t.String(), ".", "__")
	if len(name) <= 63 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "outbox_" + hex.EncodeToString(sum[:16])
}
