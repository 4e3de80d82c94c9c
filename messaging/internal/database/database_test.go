package database_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/catchment-events/catchment/messaging/internal/database"
)

func TestTable(t *testing.T) {
	for _, tt := range []struct {
		dialect    database.Dialect
		name, want string // "": refused
	}{
		{database.SQLite, "outbox", `"outbox" "outbox_lease" "outbox_parked"`},
		{database.Postgres, "app.outbox", `"app"."outbox" "app"."outbox_lease" "outbox_parked"`},
		{database.SQLite, "app.outbox", ""},
		{database.Postgres, "a.b.c", ""},
		{database.Postgres, `a"b`, ""},
		{database.Postgres, "1a", ""},
		{database.Postgres, "A", ""},
		{database.Postgres, "", ""},
		{database.Postgres, strings.Repeat("a", 41), ""},
	} {
		table, err := database.ParseTable(tt.dialect, tt.name)
		got := ""
		if err == nil {
			got = table.Expand(`{table} {table_lease} {index_parked}`)
			if table.String() != tt.name {
				t.Errorf("%q: String is %q", tt.name, table)
			}
		}
		if got != tt.want {
			t.Errorf("%v %q: %s (%v), want %s", tt.dialect, tt.name, got, err, tt.want)
		}
	}
}

func TestLists(t *testing.T) {
	odd := []string{`a`, `b "c" \d`, ``, `{e,f}`, `NULL`}
	for _, tt := range []struct{ got, want string }{
		{database.Postgres.Integers(nil), `{}`},
		{database.Postgres.Integers([]int64{1, -2}), `{1,-2}`},
		{database.SQLite.Integers(nil), `[]`},
		{database.SQLite.Integers([]int64{1, -2}), `[1,-2]`},
		{database.Postgres.Strings(nil), `{}`},
		{database.Postgres.Strings(odd), `{"a","b \"c\" \\d","","{e,f}","NULL"}`},
		{database.SQLite.Strings(nil), `[]`},
		{database.SQLite.Strings(odd), `["a","b \"c\" \\d","","{e,f}","NULL"]`},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// states and codes are errors as drivers have them.
type states string

func (e states) Error() string    { return "ERROR (SQLSTATE " + string(e) + ")" }
func (e states) SQLState() string { return string(e) }

type codes int

func (e codes) Error() string { return fmt.Sprintf("SQL logic error (%d)", int(e)) }
func (e codes) Code() int     { return int(e) }

func TestTransient(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("broken"), false},
		{states("40001"), true},
		{states("40P01"), true},
		{states("23505"), false},
		{fmt.Errorf("commit: %w", states("40001")), true},
		{codes(5), true},
		{codes(517), true}, // SQLITE_BUSY_SNAPSHOT
		{codes(6), true},
		{codes(19), false},
		{errors.New("database is locked"), true},
	} {
		if got := database.Transient(tt.err); got != tt.want {
			t.Errorf("Transient(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestReason(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain", "plain"},
		{"two\r\nlines\x00", "two  lines "},
		{"no \xff UTF-8", "no \uFFFD UTF-8"},
		{strings.Repeat("ü", 20), strings.Repeat("ü", 8)},
	} {
		if got := database.Reason(tt.in, 17); got != tt.want {
			t.Errorf("Reason(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestIdentity(t *testing.T) {
	long := strings.Repeat("x", 2000)
	seen := make(map[[2]string]bool)
	for _, in := range [][2]string{
		{"a", "b"}, {"ab", ""}, {long, "b"}, {long + "b", ""}, {"b", long}, {long, long},
		{"a", "b\x00"}, {"a\x00", "b"}, {"a\x00b", "c"}, {"a", "b\x00c"}, {"a", "\xff"}, {"a", "\xfe"}, {"\xff", "a"},
		{long, "b\x00c"}, {long + "\x00b", "c"}, {long, "\xff"},
	} {
		source, id := database.Identity(in[0], in[1])
		if len(source)+len(id) > 1024 || seen[[2]string{source, id}] {
			t.Errorf("Identity(%.10q…, %.10q…) = %q, %q: too long, or not its own", in[0], in[1], source, id)
		}
		if text := source + id; !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			t.Errorf("Identity(%.10q…, %.10q…) = %q, %q: PostgreSQL has no such text", in[0], in[1], source, id)
		}
		seen[[2]string{source, id}] = true
	}
	if source, id := database.Identity("a", "b"); source != "a" || id != "b" {
		t.Errorf("a short one is %q, %q", source, id)
	}
	if got := database.Key("k"); got != "k" {
		t.Errorf("a short key is %q", got)
	}
	if a, b := database.Key(long), database.Key(long+"y"); a == b || len(a) > 1024 {
		t.Errorf("long keys are %q and %q", a, b)
	}
	if a, b := database.Key("k\x00"), database.Key("k\xff"); a == b || len(a)+len(b) != 2*len("sha256 ")+2*64 {
		t.Errorf("keys that are no text are %q and %q", a, b)
	}
}

func TestNumbered(t *testing.T) {
	const query = `SELECT json_extract(value, '$.seq') FROM x WHERE a = $1 AND b = $12`
	for d, want := range map[database.Dialect]string{
		database.Postgres: query,
		database.SQLite:   `SELECT json_extract(value, '$.seq') FROM x WHERE a = ?1 AND b = ?12`,
	} {
		if got := d.Numbered(query); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
