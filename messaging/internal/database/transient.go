package database

import (
	"errors"
	"strings"
)

// Transient reports whether a transaction that failed with err is worth another
// try as it is: it lost against another one that ran beside it.
func Transient(err error) bool {
	if err == nil {
		return false
	}
	// The errors of PostgreSQL's drivers.
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		switch e.SQLState() {
		case "40001", "40P01": // serialization failure, deadlock
			return true
		}
		return false
	}
	// Those of modernc.org/sqlite, whose code has more bits than these.
	if e, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		switch e.Code() & 0xff {
		case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
			return true
		}
		return false
	}
	return strings.Contains(err.Error(), "database is locked") // another SQLite driver
}
