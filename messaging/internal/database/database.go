// Package database is what the outbox and the inbox know of the databases that
// they work on, without a driver of either.
package database

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Dialect is a database's way of speaking SQL.
type Dialect uint8

// The dialects. The zero Dialect is none of them.
const (
	Postgres Dialect = iota + 1
	SQLite
)

func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "PostgreSQL"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("dialect %d", uint8(d))
}

// Of returns want, or, if that is zero, the dialect that belongs to the driver of
// db, as far as the driver's name tells.
func Of(db *sql.DB, want Dialect) (Dialect, error) {
	switch want {
	case Postgres, SQLite:
		return want, nil
	case 0:
	default:
		return 0, fmt.Errorf("%v is not known", want)
	}
	name := strings.ToLower(fmt.Sprintf("%T", db.Driver()))
	switch {
	case strings.Contains(name, "sqlite"):
		return SQLite, nil
	case strings.Contains(name, "stdlib."), strings.Contains(name, "pgx"), strings.Contains(name, "pq."):
		return Postgres, nil
	}
	return 0, fmt.Errorf("the driver %T does not tell what database it is for: set Dialect", db.Driver())
}

var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,39}\.)?[a-z_][a-z0-9_]{0,39}$`)

// A Table is the name of a table, perhaps with a schema, that has been checked.
type Table struct {
	schema string // with its dot; quoted
	name   string
}

// ParseTable checks the name of a table: it goes into statements.
func ParseTable(d Dialect, name string) (Table, error) {
	schema, rest, ok := strings.Cut(name, ".")
	switch {
	case !tableName.MatchString(name):
		return Table{}, fmt.Errorf("table %q: must be 1 to 40 of a-z, 0-9 and _, no digit first, with such a schema and a dot before it or not", name)
	case !ok:
		return Table{name: name}, nil
	case d == SQLite:
		return Table{}, fmt.Errorf("table %q: SQLite has no schemas", name)
	}
	return Table{schema: `"` + schema + `".`, name: rest}, nil
}

// Resolve returns the dialect of db and its table, of which each has a default.
func Resolve(db *sql.DB, d Dialect, table, standard string) (Dialect, Table, error) {
	d, err := Of(db, d)
	if err != nil {
		return 0, Table{}, err
	}
	if table == "" {
		table = standard
	}
	t, err := ParseTable(d, table)
	return d, t, err
}

// NowSQLite is the time in milliseconds since 1970, in SQLite.
const NowSQLite = `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`

// Numbered returns a statement with its arguments as the dialect numbers them: $1
// would be a name in SQLite, where $.seq is a path and stays.
func (d Dialect) Numbered(query string) string {
	if d == SQLite {
		return argument.ReplaceAllString(query, "?$1")
	}
	return query
}

var argument = regexp.MustCompile(`\$([0-9]+)`)

// Expand puts the names of tables in the place of {table}, {table_lease} and so
// on, and in that of {index}, {index_parked} and so on names without a schema.
func (t Table) Expand(query string) string {
	return placeholder.ReplaceAllStringFunc(query, func(s string) string {
		m := placeholder.FindStringSubmatch(s)
		if m[1] == "table" {
			return t.schema + `"` + t.name + m[2] + `"`
		}
		return `"` + t.name + m[2] + `"`
	})
}

var placeholder = regexp.MustCompile(`\{(table|index)(_[a-z]+)?\}`)

// String returns the name as it was given.
func (t Table) String() string { return strings.ReplaceAll(t.schema, `"`, "") + t.name }

// Integers returns a list for `= ANY($1::bigint[])` in PostgreSQL, and for
// `IN (SELECT value FROM json_each(?))` in SQLite.
func (d Dialect) Integers(list []int64) string {
	open, end := byte('['), byte(']')
	if d == Postgres {
		open, end = '{', '}'
	}
	b := make([]byte, 0, 2+8*len(list))
	b = append(b, open)
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, end))
}

var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// Strings is Integers for text.
func (d Dialect) Strings(list []string) string {
	if d == SQLite {
		if list == nil {
			return "[]"
		}
		b, _ := json.Marshal(list) // strings always marshal
		return string(b)
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = quoteElement.WriteString(&b, s) // to memory
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
