package event

import (
	"errors"
	"strings"
	"time"
)

var (
	errTimeRange = errors.New("the year must be in the range 0 to 9999")
	errTime      = errors.New("is not an RFC 3339 time")
)

func timeInRange(t time.Time) bool {
	year := t.UTC().Year()
	return 0 <= year && year <= 9999
}

func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, time.RFC3339Nano)
}

// parseTime reads an RFC 3339 time. Package time does not take the lower-case t and
// z that the RFC allows, and takes what the RFC does not: hours of one digit, a
// comma before the fraction, a zone of a day and more.
func parseTime(s string) (time.Time, error) {
	if strings.ContainsAny(s, "tz") {
		s = strings.ToUpper(s)
	}
	if !isRFC3339(s) {
		return time.Time{}, errTime
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, errTime
	}
	return t.UTC(), nil
}

// isRFC3339 checks the form and leaves it to package time whether the day exists.
func isRFC3339(s string) bool {
	const dateTime, zone = "0000-00-00T00:00:00", "00:00"
	if !hasForm(s, dateTime) {
		return false
	}
	s = s[len(dateTime):]
	if strings.HasPrefix(s, ".") {
		rest := strings.TrimLeft(s[1:], "0123456789")
		if len(rest) == len(s)-1 {
			return false
		}
		s = rest
	}
	if s == "Z" {
		return true
	}
	return len(s) == 1+len(zone) && (s[0] == '+' || s[0] == '-') && hasForm(s[1:], zone) && s[1:3] < "24"
}

// hasForm reports whether s begins as form does, in which a 0 is any digit.
func hasForm(s, form string) bool {
	if len(s) < len(form) {
		return false
	}
	for i := range len(form) {
		if form[i] == '0' && (s[i] < '0' || s[i] > '9') || form[i] != '0' && s[i] != form[i] {
			return false
		}
	}
	return true
}
