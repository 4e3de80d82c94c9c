package event

import (
	"errors"
	"time"
)

var (
	errTimeRange = errors.New("the year must be in the range 0 to 9999")
	errTime      = errors.New("is not an RFC 3339 time")
)

// The seconds of the years that RFC 3339 can write, 0 to 9999.
const (
	firstSecond = -62167219200
	lastSecond  = 253402300799
)

func timeInRange(t time.Time) bool {
	seconds := t.Unix()
	return firstSecond <= seconds && seconds <= lastSecond
}

func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, time.RFC3339Nano)
}

// timeLen is how many bytes appendTime appends of a time in range.
func timeLen(t time.Time) int {
	n := len("2006-01-02T15:04:05Z")
	if fraction := t.Nanosecond(); fraction != 0 {
		n += len(".000000000")
		for ; fraction%10 == 0; fraction /= 10 {
			n--
		}
	}
	return n
}

// parseTime reads an RFC 3339 time. Package time does not take the lower-case t and
// z that the RFC allows, and takes what the RFC does not: hours of one digit, a
// comma before the fraction, a zone of a day and more.
func parseTime(s string) (time.Time, error) {
	const dateTime, zone = "2006-01-02T15:04:05", "+07:00"
	if len(s) <= len(dateTime) || s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return time.Time{}, errTime
	}
	century, year, month, day := twoDigits(s), twoDigits(s[2:]), twoDigits(s[5:]), twoDigits(s[8:])
	hour, minute, second := twoDigits(s[11:]), twoDigits(s[14:]), twoDigits(s[17:])
	if century|year|month|day < 0 || month < 1 || month > 12 ||
		hour|minute|second < 0 || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, errTime
	}

	s = s[len(dateTime):]
	nanosecond := 0
	if s[0] == '.' {
		digits := 1
		for unit := 100_000_000; digits < len(s) && '0' <= s[digits] && s[digits] <= '9'; unit /= 10 {
			nanosecond += int(s[digits]-'0') * unit // what is smaller than one is cut off
			digits++
		}
		if digits == 1 {
			return time.Time{}, errTime
		}
		s = s[digits:]
	}

	offset := 0
	switch {
	case s == "Z" || s == "z":
	case len(s) == len(zone) && (s[0] == '+' || s[0] == '-') && s[3] == ':':
		hours, minutes := twoDigits(s[1:]), twoDigits(s[4:])
		if hours|minutes < 0 || hours > 23 || minutes > 59 {
			return time.Time{}, errTime
		}
		if offset = (hours*60 + minutes) * 60; s[0] == '-' {
			offset = -offset
		}
	default:
		return time.Time{}, errTime
	}

	t := time.Date(century*100+year, time.Month(month), day, hour, minute, second, nanosecond, time.UTC)
	if t.Day() != day {
		return time.Time{}, errTime // there is no such day in the month
	}
	return t.Add(-time.Duration(offset) * time.Second), nil
}

// twoDigits returns the number that s begins with, or -1.
func twoDigits(s string) int {
	tens, ones := s[0]-'0', s[1]-'0'
	if tens > 9 || ones > 9 {
		return -1
	}
	return int(tens)*10 + int(ones)
}
